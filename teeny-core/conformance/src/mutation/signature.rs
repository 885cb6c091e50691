//! The kind of a request, which decides its mutations: its variant and name, the dtypes of its
//! operands and results, its scalar program.

use super::request::Request;
use std::fmt;
use teeny_core::DType;
use teeny_core::op::recorded::Recorded;

/// Requests with equal signatures have the same mutations.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Signature {
    pub variant: &'static str,
    pub name: &'static str,
    pub operands: Vec<DType>,
    pub results: Vec<DType>,
    params: usize,
    program: u64,
}

/// A request of a signature, without its operands.
pub struct Noted {
    pub attributes: Recorded,
    pub params: usize,
    pub has_key: bool,
}

impl Signature {
    pub fn of(request: &Request) -> Signature {
        Signature {
            variant: request.variant,
            name: request.name,
            operands: request.operands.iter().map(|x| x.dtype()).collect(),
            results: request.specs.iter().map(|&(_, dtype)| dtype).collect(),
            params: request.params.len(),
            program: request.attributes.kernel().map_or(0, |kernel| kernel.content_hash()),
        }
    }
}

impl Noted {
    pub fn of(request: &Request) -> Noted {
        Noted {
            attributes: request.attributes.clone(),
            params: request.params.len(),
            has_key: request.key.is_some(),
        }
    }
}

impl fmt::Debug for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }
}
