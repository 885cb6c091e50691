//! Classes and normal forms of characters.
//!
//! Sources: Unicode Standard Annex 15 (normal forms); the classes of BERT's `tokenization.py`.
//! NOTE: these are the characters of a recent Unicode. Hugging Face's crate (0.23) uses tables of
//! Unicode 8 and 9. It treats 618 of the 391,168 code points outside planes 3 to 13 differently in
//! BERT's tokenizer, 46 in NFKC, none in byte-level BPE: they were added since 2016.

use super::aligned::Output;
use std::collections::VecDeque;
use std::str::Chars;
use unicode_general_category::{GeneralCategory as G, get_general_category};
use unicode_normalization::char as normal;
pub(super) use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{
    IsNormalized, is_nfc_quick, is_nfd_quick, is_nfkc_quick, is_nfkd_quick,
};

/// Punctuation: any ASCII sign, or the category P of Unicode.
pub(super) fn is_punctuation(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_punctuation();
    }
    matches!(
        get_general_category(c),
        G::ConnectorPunctuation
            | G::DashPunctuation
            | G::OpenPunctuation
            | G::ClosePunctuation
            | G::InitialPunctuation
            | G::FinalPunctuation
            | G::OtherPunctuation
    )
}

/// A control, format or private character, except tab and line breaks.
pub(super) fn is_control(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r');
    }
    matches!(get_general_category(c), G::Control | G::Format | G::PrivateUse)
}

/// A mark without width, such as an accent.
pub(super) fn is_nonspacing_mark(c: char) -> bool {
    c >= '\u{300}' && get_general_category(c) == G::NonspacingMark
}

/// An ideograph, which BERT takes as a word. The blocks are from `tokenization.py`, with the gap of
/// Hugging Face's crate before U+2B920.
pub(super) fn is_ideograph(c: char) -> bool {
    matches!(
        u32::from(c),
        0x4e00..=0x9fff
            | 0x3400..=0x4dbf
            | 0x20000..=0x2a6df
            | 0x2a700..=0x2b73f
            | 0x2b740..=0x2b81f
            | 0x2b920..=0x2ceaf
            | 0xf900..=0xfaff
            | 0x2f800..=0x2fa1f
    )
}

/// A character of words: `\w` of regular expressions.
pub(super) fn is_word(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    let category = get_general_category(c);
    c.is_alphabetic()
        || matches!(c, '\u{200c}' | '\u{200d}')
        || matches!(category, G::NonspacingMark | G::SpacingMark | G::EnclosingMark)
        || matches!(category, G::DecimalNumber | G::ConnectorPunctuation)
}

/// A normal form of Unicode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

/// A character of a normal form, and its effect on the position in the source: 0 replaces a
/// character, 1 is added, -n replaces one and removes n more.
pub(super) type Changed = (char, isize);

impl Form {
    /// True if `text` is in this form.
    pub(super) fn holds(self, text: &str) -> bool {
        let quick = match self {
            _ if text.is_ascii() => return true,
            Form::Nfc => is_nfc_quick(text.chars()),
            Form::Nfd => is_nfd_quick(text.chars()),
            Form::Nfkc => is_nfkc_quick(text.chars()),
            Form::Nfkd => is_nfkd_quick(text.chars()),
        };
        quick == IsNormalized::Yes
    }

    /// Writes `text` in this form.
    pub(super) fn write(self, text: &str, out: &mut Output) {
        let mut position = Position::new(text, out);
        let mut composer = Composer::default();
        // a character without combining class ends the marks before it
        let mut pending: Vec<(u8, Changed)> = Vec::new();
        for c in text.chars() {
            let mut first = true;
            let decomposed = |d| {
                let class = normal::canonical_combining_class(d);
                if class == 0 {
                    self.flush(&mut pending, &mut composer, &mut position);
                }
                pending.push((class, (d, isize::from(!std::mem::take(&mut first)))));
            };
            match self {
                Form::Nfc | Form::Nfd => normal::decompose_canonical(c, decomposed),
                Form::Nfkc | Form::Nfkd => normal::decompose_compatible(c, decomposed),
            }
        }
        self.flush(&mut pending, &mut composer, &mut position);
        composer.end(&mut position);
    }

    /// Passes on `pending` in the order of the combining classes.
    fn flush(
        self,
        pending: &mut Vec<(u8, Changed)>,
        composer: &mut Composer,
        position: &mut Position<'_, '_>,
    ) {
        pending.sort_by_key(|(class, _)| *class);
        for (class, changed) in pending.drain(..) {
            match self {
                Form::Nfd | Form::Nfkd => position.push(changed),
                Form::Nfc | Form::Nfkc => composer.push(class, changed, position),
            }
        }
    }
}

/// Writes characters at their positions in the source.
pub(super) struct Position<'p, 'o> {
    out: &'p mut Output<'o>,
    /// The source's characters that are not passed.
    rest: Chars<'p>,
    at: usize,
}

impl<'p, 'o> Position<'p, 'o> {
    /// At the beginning of the source `text`.
    pub(super) fn new(text: &'p str, out: &'p mut Output<'o>) -> Position<'p, 'o> {
        Position { out, rest: text.chars(), at: 0 }
    }

    /// Writes a character.
    pub(super) fn push(&mut self, (c, change): Changed) {
        // an added character comes from the one before
        let from = if change > 0 { self.at.saturating_sub(1) } else { self.at };
        self.out.push(c, from);
        if change <= 0 {
            let passed = self.rest.by_ref().take(1 + change.unsigned_abs());
            self.at += passed.map(char::len_utf8).sum::<usize>();
        }
    }
}

/// Composes a character with the marks after it.
#[derive(Default)]
struct Composer {
    composee: Option<Changed>,
    marks: VecDeque<Changed>,
    last_class: Option<u8>,
}

impl Composer {
    fn push(&mut self, class: u8, (c, change): Changed, position: &mut Position<'_, '_>) {
        let Some(composee) = self.composee else {
            match class {
                0 => self.composee = Some((c, change)),
                _ => position.push((c, change)),
            }
            return;
        };
        let blocked = self.last_class.is_some_and(|last| last >= class);
        if !blocked && let Some(composed) = normal::compose(composee.0, c) {
            self.composee = Some((composed, composee.1 + change - 1));
        } else if class == 0 {
            self.end(position);
            self.composee = Some((c, change));
        } else {
            self.marks.push_back((c, change));
            self.last_class = Some(class);
        }
    }

    fn end(&mut self, position: &mut Position<'_, '_>) {
        self.composee.take().into_iter().for_each(|changed| position.push(changed));
        self.marks.drain(..).for_each(|changed| position.push(changed));
        self.last_class = None;
    }
}
