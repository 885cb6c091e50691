//! A thread that reads tensors: a device may compute for minutes before it has the elements, and
//! the thread that calls MPI answers the other ranks meanwhile.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use teeny_core::{Error, Result, Tensor};

pub(super) struct Reader {
    tensors: Sender<Tensor>,
    bytes: Receiver<Result<Vec<u8>>>,
}

impl Reader {
    pub fn new() -> Result<Reader> {
        let (tensors, received) = channel::<Tensor>();
        let (sender, bytes) = channel();
        std::thread::Builder::new()
            .name("teeny mpi reader".into())
            .spawn(move || {
                while let Ok(x) = received.recv() {
                    if sender.send(x.to_bytes()).is_err() {
                        return;
                    }
                }
            })
            .map_err(|e| {
                Error::io(format!("cannot start the reading thread: {e}")).with_source(e)
            })?;
        Ok(Reader { tensors, bytes })
    }

    /// The elements of `x`; calls `meanwhile` every `interval` until they are there.
    pub fn read(
        &self,
        x: &Tensor,
        interval: Duration,
        mut meanwhile: impl FnMut(),
    ) -> Result<Vec<u8>> {
        let ended = || Error::internal("the reading thread has ended");
        self.tensors.send(x.clone()).map_err(|_| ended())?;
        loop {
            match self.bytes.recv_timeout(interval) {
                Ok(bytes) => return bytes,
                Err(RecvTimeoutError::Timeout) => meanwhile(),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
    }
}
