//! Messages between two ranks, and the [`Transport`] that carries them.

use super::kind::{Kind, MessageKind};
use std::fmt;
#[cfg(feature = "mpi")]
use teeny_core::memory;
use teeny_core::{DType, Error, Result, Tensor};

/// The first bytes of a head: a hash of the version of this crate (FNV-1a, 32 bits).
#[cfg(feature = "mpi")]
const VERSION: [u8; 4] = {
    let (text, mut hash, mut i) = (env!("CARGO_PKG_VERSION").as_bytes(), 0x811c_9dc5u32, 0);
    while i < text.len() {
        hash = (hash ^ text[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash.to_le_bytes()
};

/// The operation that a message belongs to: both sides must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The communicator, and the number of the operation in it.
    pub group: u64,
    pub sequence: u64,
    /// Kind, purpose, dtype and the elements of all shares.
    pub kind: u8,
    pub purpose: u8,
    pub dtype: u8,
    pub root: u32,
    pub elements: u64,
    /// The bytes of data that follow.
    pub bytes: u64,
    pub note: Vec<u8>,
}

impl Header {
    /// Operation number `sequence` of a communicator, with this many elements in all shares.
    pub fn new(
        group: u64,
        sequence: u64,
        (kind, purpose): (Kind, MessageKind),
        dtype: DType,
        elements: u64,
    ) -> Header {
        let (kind, root) = match kind {
            Kind::AllReduce(reduce) => (reduce as u8, 0),
            Kind::ReduceScatter(reduce) => (3 + reduce as u8, 0),
            Kind::AllGather => (6, 0),
            Kind::Broadcast { root } => (7, root as u32),
        };
        let (dtype, purpose) = (dtype as u8, purpose as u8);
        Header { group, sequence, kind, purpose, dtype, root, elements, bytes: 0, note: Vec::new() }
    }

    /// The head without its note, of which it has the length.
    #[cfg(feature = "mpi")]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_vec();
        let words = [self.group, self.sequence, self.elements, self.bytes, self.note.len() as u64];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(self.root.to_le_bytes());
        out.extend([self.kind, self.purpose, self.dtype]);
        out
    }

    /// The inverse of [`Header::encode`]; the note is zeros.
    #[cfg(feature = "mpi")]
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let (words, rest) = bytes.strip_prefix(&VERSION)?.split_at_checked(5 * 8)?;
        let mut words = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let (root, rest) = rest.split_first_chunk()?;
        let [kind, purpose, dtype] = *rest else { return None };
        Some(Header {
            group: words.next()?,
            sequence: words.next()?,
            kind,
            purpose,
            dtype,
            root: u32::from_le_bytes(*root),
            elements: words.next()?,
            bytes: words.next()?,
            note: memory::filled(0, usize::try_from(words.next()?).ok()?).ok()?,
        })
    }

    /// Whether both heads are of one operation.
    fn agrees(&self, other: &Header) -> bool {
        Header { bytes: 0, note: Vec::new(), ..self.clone() }
            == Header { bytes: 0, note: Vec::new(), ..other.clone() }
    }
}

/// As messages name the operation.
impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let purpose = MessageKind::NAMES.get(self.purpose as usize).copied().unwrap_or("");
        let (name, reduce) = match self.kind {
            _ if !purpose.is_empty() => (purpose, None),
            kind @ 0..3 => ("all_reduce", Some(kind)),
            kind @ 3..6 => ("reduce_scatter", Some(kind - 3)),
            6 => ("all_gather", None),
            7 => ("broadcast", None),
            _ => ("an unknown operation", None),
        };
        f.write_str(name)?;
        if let Some(reduce) = reduce {
            write!(f, "({})", ["sum", "mean", "max"][reduce as usize % 3])?;
        }
        if self.elements > 0 {
            let dtype = DType::ALL.get(self.dtype as usize).map_or("?", |dtype| dtype.name());
            write!(f, " of {} {dtype}", self.elements)?;
        }
        if self.kind == 7 {
            write!(f, " from rank {}", self.root)?;
        }
        write!(f, " (operation {})", self.sequence)
    }
}

/// A message for one rank.
pub(super) struct Outgoing<'a> {
    pub to: usize,
    pub head: Header,
    pub data: &'a [u8],
}

/// A message that is expected: from whom, and where its data belongs.
pub(super) struct Expected<'a> {
    pub from: usize,
    pub head: Header,
    pub into: &'a mut [u8],
}

/// Carries messages between ranks.
pub(super) trait Transport {
    /// Sends messages and receives those expected; the notes of the latter, in their order.
    /// Messages between two ranks arrive in the order in which they were sent.
    ///
    /// # Errors
    /// If a message is another one than expected ([`Expected::check`]), or a rank fails.
    fn exchange(
        &mut self,
        outgoing: &[Outgoing<'_>],
        expected: &mut [Expected<'_>],
    ) -> Result<Vec<Vec<u8>>>;

    /// The elements of `x`.
    ///
    /// # Errors
    /// If the device fails.
    fn read(&mut self, x: &Tensor) -> Result<Vec<u8>> {
        x.to_bytes()
    }

    /// Memory for received data, kept from one operation to the next: new memory costs more than
    /// the copy.
    fn scratch(&mut self) -> &mut Vec<u8>;
}

impl Expected<'_> {
    /// Returns an error unless `head` equals the header of the expected message.
    pub fn check(&self, head: &Header) -> Result<()> {
        if self.head.agrees(head) && head.bytes == self.into.len() as u64 {
            return Ok(());
        }
        let what = if self.head.agrees(head) { " with other shares" } else { "" };
        let text = format!("this rank calls {}, rank {} {head}{what}", self.head, self.from);
        Err(Error::value(text).help("all ranks call the same operations in the same order"))
    }
}
