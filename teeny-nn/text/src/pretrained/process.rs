//! Post-processors: they add special tokens around sequences, and truncate.

use super::added::spaces;
use super::encoding::{EncodeOptions, Encoding, Truncation};
use crate::section::Section;
use std::collections::HashMap;
use teeny_core::file::{Budget, quoted};
use teeny_core::{Error, Result};

/// A step after the model.
#[derive(Clone, Debug)]
pub(super) enum Processor {
    /// One after the other.
    Sequence(Vec<Processor>),
    /// Removes white space from the offsets of tokens.
    TrimOffsets { add_prefix_space: bool },
    /// Sets all types to 0.
    NoTypes,
    /// Texts and special tokens in the order of a template.
    Template { single: Vec<Slot>, pair: Vec<Slot> },
}

/// A part of a template.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    /// Text 0 or 1 with this type; None keeps it.
    Text(usize, Option<u32>),
    /// A special token with a type.
    Token(u32, u32),
}

/// The tokens of a text, with what offsets are trimmed by.
#[derive(Debug, Default)]
pub(super) struct Sequence<'a> {
    pub encoding: Encoding,
    /// The text.
    pub text: &'a str,
    /// The white space in added tokens, by index.
    pub spaces: HashMap<usize, (usize, usize)>,
}

impl Processor {
    /// Reads the object `section`.
    ///
    /// # Errors
    /// If the kind is not supported or an option is wrong.
    pub(super) fn parse(section: &Section, budget: &mut Budget) -> Result<Processor> {
        let kind = section.string("type")?;
        let token = |key: &str| {
            let items = section.get(key).and_then(|value| value.items());
            let id = items.and_then(|items| items.last()?.number());
            id.and_then(|id| u32::try_from(id).ok())
                .ok_or_else(|| section.wrong(key, "a pair of a text and its token"))
        };
        Ok(match kind.as_str() {
            "Sequence" => {
                let parts = section.sections("processors")?;
                let parts = parts.iter().map(|part| Processor::parse(part, budget));
                let mut parts: Vec<Processor> = parts.collect::<Result<_>>()?;
                // special tokens have no offsets
                parts.sort_by_key(Processor::templates);
                if parts.iter().map(Processor::templates).sum::<usize>() > 1 {
                    let place = section.place("processors");
                    return Err(Error::unsupported(format!("{place}: two processors add tokens")));
                }
                Processor::Sequence(parts)
            }
            "ByteLevel" => match section.flag("trim_offsets", true)? {
                true => Processor::TrimOffsets {
                    add_prefix_space: section.flag("add_prefix_space", true)?,
                },
                false => Processor::Sequence(vec![]),
            },
            "BertProcessing" => Processor::around(token("cls")?, token("sep")?, None, None),
            "RobertaProcessing" => {
                let (cls, sep) = (token("cls")?, token("sep")?);
                let mut steps = Vec::new();
                if section.flag("trim_offsets", true)? {
                    let add_prefix_space = section.flag("add_prefix_space", true)?;
                    steps.push(Processor::TrimOffsets { add_prefix_space });
                }
                steps.extend([Processor::NoTypes, Processor::around(cls, sep, Some(sep), Some(0))]);
                Processor::Sequence(steps)
            }
            "TemplateProcessing" => Processor::Template {
                single: template(section, "single", budget)?,
                pair: template(section, "pair", budget)?,
            },
            kind => return Err(section.unknown(kind)),
        })
    }

    /// `cls A sep`, and for pairs `cls A sep middle B sep`, in which the special tokens of B have
    /// the type `after`, by default 1.
    pub(super) fn around(cls: u32, sep: u32, middle: Option<u32>, after: Option<u32>) -> Processor {
        let single = vec![Slot::Token(cls, 0), Slot::Text(0, None), Slot::Token(sep, 0)];
        let after = after.unwrap_or(1);
        let mut pair = single.clone();
        pair.extend(middle.map(|token| Slot::Token(token, after)));
        pair.extend([Slot::Text(1, None), Slot::Token(sep, after)]);
        Processor::Template { single, pair }
    }

    fn templates(&self) -> usize {
        match self {
            Processor::Sequence(parts) => parts.iter().map(Processor::templates).sum(),
            Processor::Template { .. } => 1,
            _ => 0,
        }
    }

    /// The number of special tokens around a text or a pair.
    pub(super) fn added_tokens(&self, is_pair: bool) -> usize {
        match self {
            Processor::Sequence(parts) => parts.iter().map(|p| p.added_tokens(is_pair)).sum(),
            Processor::Template { single, pair } => {
                let slots = if is_pair { pair } else { single };
                slots.iter().filter(|slot| matches!(slot, Slot::Token(..))).count()
            }
            _ => 0,
        }
    }

    /// Changes the sequences: one or two in, and out one that is complete or as many.
    pub(super) fn apply<'v>(
        &self,
        sequences: &mut Vec<Sequence>,
        add_special_tokens: bool,
        text_of: &impl Fn(u32) -> Option<&'v str>,
    ) {
        match self {
            Processor::Sequence(parts) => {
                for part in parts {
                    part.apply(sequences, add_special_tokens, text_of);
                }
            }
            Processor::TrimOffsets { add_prefix_space } => {
                sequences.iter_mut().for_each(|s| s.trim(*add_prefix_space, text_of));
            }
            Processor::NoTypes => {
                sequences.iter_mut().for_each(|s| s.encoding.type_ids.fill(0));
            }
            Processor::Template { single, pair } => {
                let slots = if sequences.len() > 1 { pair } else { single };
                let mut whole = Encoding::default();
                for slot in slots {
                    match *slot {
                        Slot::Token(id, type_id) if add_special_tokens => {
                            whole.push_special(id, type_id);
                        }
                        Slot::Token(..) => {}
                        Slot::Text(i, type_id) => {
                            let Some(sequence) = sequences.get(i) else { continue };
                            let mut encoding = sequence.encoding.clone();
                            type_id.into_iter().for_each(|t| encoding.type_ids.fill(t));
                            whole.append(encoding);
                        }
                    }
                }
                *sequences = vec![Sequence { encoding: whole, ..Sequence::default() }];
            }
        }
    }
}

impl Sequence<'_> {
    /// Removes white space from the offsets, except a space that the pre-tokenizer added.
    fn trim<'v>(&mut self, add_prefix_space: bool, text_of: &impl Fn(u32) -> Option<&'v str>) {
        let ids = self.encoding.ids.iter().zip(&mut self.encoding.offsets);
        for (i, (id, (start, end))) in ids.enumerate() {
            let (mut before, after) = match self.spaces.get(&i) {
                Some(spaces) => *spaces,
                None => spaces(text_of(*id).unwrap_or_default()),
            };
            if before == 1 && add_prefix_space && (i == 0 || *start == 0) {
                before = 0;
            }
            // an offset may be within the white space that a pre-tokenizer added
            let (first, last) = (self.text.get(*start..), self.text.get(..*end));
            let width = |chars: Option<char>| chars.map_or(0, char::len_utf8);
            let mut chars = first.unwrap_or_default().chars();
            *start += (0..before).map(|_| width(chars.next())).sum::<usize>();
            *start = (*start).min(*end);
            let mut chars = last.unwrap_or_default().chars();
            *end -= (0..after).map(|_| width(chars.next_back())).sum::<usize>();
            *end = (*end).max(*start);
        }
    }
}

/// The largest number of texts in a template.
const MAX_TEXTS: usize = 8;

/// The slots of the template `key`, which refer to the member `special_tokens`.
fn template(section: &Section, key: &str, budget: &mut Budget) -> Result<Vec<Slot>> {
    let tokens = section.section("special_tokens")?;
    // some may be for the other template
    tokens.iter().for_each(|all| all.keys().for_each(|name| _ = all.get(name)));
    let mut slots = Vec::new();
    for piece in section.sections(key)? {
        let text = piece.section("Sequence")?;
        let slot = match &text {
            Some(slot) => slot,
            None => &piece
                .section("SpecialToken")?
                .ok_or_else(|| piece.wrong("SpecialToken", "a Sequence or a SpecialToken"))?,
        };
        let (id, type_id) = (slot.string("id")?, slot.number("type_id")?.unwrap_or(0));
        let type_id =
            u32::try_from(type_id).map_err(|_| slot.wrong("type_id", "a number of 32 bits"))?;
        if text.is_some() {
            slots.push(match id.as_str() {
                "A" => Slot::Text(0, Some(type_id)),
                "B" if key == "pair" => Slot::Text(1, Some(type_id)),
                _ => return Err(slot.wrong("id", "A, or in a pair B")),
            });
            continue;
        }
        let token = tokens.as_ref().map(|tokens| tokens.section(&id)).transpose()?.flatten();
        let token = token.ok_or_else(|| {
            let place = section.place("special_tokens");
            Error::format(format!("{place} has no token {}", quoted(&id)))
        })?;
        for id in token.list("ids")? {
            budget.charge(size_of::<Slot>())?;
            let id = id.number().and_then(|id| u32::try_from(id).ok());
            slots.push(Slot::Token(
                id.ok_or_else(|| token.wrong("ids", "a list of tokens"))?,
                type_id,
            ));
        }
    }
    if slots.iter().filter(|slot| matches!(slot, Slot::Text(..))).count() > MAX_TEXTS {
        return Err(section.wrong(key, &format!("at most {MAX_TEXTS} sequences")));
    }
    Ok(slots)
}

/// Shortens the sequences so that they and `added` special tokens fit into `options.max_length`.
///
/// # Errors
/// If the special tokens do not fit, or the sequence that may be shortened would be empty.
pub(super) fn truncate(
    sequences: &mut [Sequence],
    added: usize,
    options: &EncodeOptions,
) -> Result<()> {
    let Some(max_length) = options.max_length else { return Ok(()) };
    let max = max_length.checked_sub(added).ok_or_else(|| {
        Error::value(format!("max_length is {max_length}, but {added} special tokens are added"))
            .help("a larger max_length, or no special tokens")
    })?;
    let side = options.truncation_side;
    let mut lengths = [0, 0];
    for (length, sequence) in lengths.iter_mut().zip(&*sequences) {
        *length = sequence.encoding.len();
    }
    let total = lengths[0] + lengths[1];
    if total <= max {
        return Ok(());
    }
    let removed = total - max;
    let only = match options.truncation {
        _ if max == 0 => {
            sequences.iter_mut().for_each(|sequence| sequence.cut(0, side));
            return Ok(());
        }
        Truncation::LongestFirst => {
            let [short, long] = if lengths[0] > lengths[1] { [1, 0] } else { [0, 1] };
            let n = lengths[short];
            let mut keep = [n, if n > max { n } else { n.max(max - n) }];
            if keep[0] + keep[1] > max {
                keep = [max / 2, max / 2 + max % 2];
            }
            if sequences.len() == 1 {
                sequences[0].cut(max, side);
                return Ok(());
            }
            sequences[short].cut(keep[0], side);
            sequences[long].cut(keep[1], side);
            return Ok(());
        }
        Truncation::OnlyFirst => 0,
        Truncation::OnlySecond => 1,
    };
    if lengths[only] <= removed {
        let name = ["OnlyFirst", "OnlySecond"][only];
        return Err(Error::value(format!(
            "max_length is {max_length}: {removed} tokens must be removed, but with {name} there \
             are {} to remove from",
            lengths[only]
        ))
        .help("Truncation::LongestFirst shortens both texts of a pair"));
    }
    sequences[only].cut(lengths[only] - removed, side);
    Ok(())
}

impl Sequence<'_> {
    /// Keeps `count` tokens at most.
    fn cut(&mut self, count: usize, side: super::Side) {
        let removed = self.encoding.len().saturating_sub(count);
        self.encoding.truncate(count, side);
        if removed > 0 && side == super::Side::Left {
            let spaces = std::mem::take(&mut self.spaces).into_iter();
            self.spaces = spaces.filter_map(|(i, s)| Some((i.checked_sub(removed)?, s))).collect();
        }
    }
}
