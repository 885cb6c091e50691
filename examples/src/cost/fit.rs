//! A link from measured all_reduces.

use teeny_core::{Error, Result};

/// A measured all_reduce between ranks of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The number of ranks.
    pub ranks: usize,
    /// The bytes of the reduced elements.
    pub bytes: f64,
    /// Seconds.
    pub seconds: f64,
}

/// Latency and seconds per byte of the link, from `seconds = 2 (n - 1) latency + 2 (n - 1) bytes
/// per_byte + (n - 1)/n bytes / sum_rate`: every rank of n sends 2 (n - 1) messages of bytes / n,
/// on a link that n ranks share.
pub(super) fn least_squares(measured: &[Measured], sum_rate: f64) -> Result<(f64, f64)> {
    if sum_rate.is_nan() || sum_rate <= 0.0 {
        return Err(Error::value(format!("sum_rate is {sum_rate}, but a rate must be above 0")));
    }
    // Rows of [messages, bytes, seconds], each divided by its time: relative errors count. Bytes
    // are divided by the largest, so that the normal equations are well conditioned.
    let scale = measured.iter().map(|m| m.bytes).fold(0.0, f64::max);
    let mut rows = Vec::with_capacity(measured.len());
    for m in measured {
        let valid = m.seconds.is_finite() && m.bytes.is_finite();
        if m.ranks < 2 || !valid || m.seconds <= 0.0 || m.bytes < 0.0 {
            return Err(Error::value(format!("{m:?} is not a measured all_reduce"))
                .help("it has two ranks or more, a time above 0 and a number of bytes"));
        }
        let n = m.ranks as f64;
        let messages = 2.0 * (n - 1.0);
        let left = m.seconds - (n - 1.0) / n * m.bytes / sum_rate;
        rows.push([messages / m.seconds, messages * m.bytes / scale / m.seconds, left / m.seconds]);
    }
    let sum = |i: usize, j: usize| rows.iter().map(|row| row[i] * row[j]).sum::<f64>();
    let (aa, ab, bb, at, bt) = (sum(0, 0), sum(0, 1), sum(1, 1), sum(0, 2), sum(1, 2));
    let determinant = aa * bb - ab * ab;
    if determinant.is_nan() || determinant <= 1e-9 * aa * bb {
        return Err(Error::value("the measurements do not tell latency and bandwidth apart")
            .help("measure at least two sizes, one of them small"));
    }
    let mut latency = (at * bb - bt * ab) / determinant;
    let mut per_byte = (bt * aa - at * ab) / determinant;
    if latency < 0.0 {
        (latency, per_byte) = (0.0, bt / bb);
    }
    let per_byte = per_byte / scale;
    if per_byte <= 0.0 {
        return Err(Error::value("larger all_reduces do not take longer than their sums")
            .help("sum_rate may be too low, or the sizes too small"));
    }
    Ok((latency, per_byte))
}
