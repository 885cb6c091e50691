//! Serves embeddings and chat with pretrained models over HTTP.
#![forbid(unsafe_code)]

use examples::options::{about, any, at_least_one};
use examples::pretrained::{dtype, tell};
use examples::{Common, Program, opt, output, println};
use serve::{Limits, Models, Server};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use teeny_core::{DType, DeviceRef, Error, Result};
use teeny_models::{Decoder, Encoder, OpenOptions};
use tokio::net::TcpListener;

/// The context of a decoder that is opened without options, at most.
const USUAL_CONTEXT: usize = 8192;

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Serves pretrained models over HTTP, with OpenAI's JSON, until SIGINT or SIGTERM.",
    options: &[
        opt("model PATH",
            "a folder of Hugging Face, a GGUF file, or ORG/NAME of a downloaded\nmodel: \
             a decoder for chat and completions, or an encoder for embeddings",
            |o, v| v.path(&mut o.model)),
        opt("embeddings PATH", "an encoder for embeddings, besides the decoder of --model",
            |o, v| v.path(&mut o.embeddings)),
        opt("address ADDRESS", "where to listen; port 0 is any free one [127.0.0.1:8080]",
            |o, v| v.with(&mut o.address, any::<SocketAddr>)),
        opt("queue N", "requests that wait for a model at most [64]",
            |o, v| v.with(&mut o.limits.queue, at_least_one)),
        opt("batch N", "texts that are computed together at most [16]",
            |o, v| v.with(&mut o.limits.batch, at_least_one)),
        opt("context N", "tokens of a prompt with its answer at most [4096, or those of the model]",
            |o, v| v.with(&mut o.limits.context, at_least_one)),
        opt("dtype NAME", "of the weights: f32, bf16 or f16 [f32]",
            |o, v| v.with(&mut o.dtype, dtype)),
        about("seed N", "seed of the first request that gives none; then the next one [1]"),
    ],
    // a server does not end, so the time line of --trace would grow for ever
    without: &[
        "data", "load", "save", "resume", "plot", "log", "trace", "lazy", "captured", "graph",
    ],
};

struct Options {
    model: Option<PathBuf>,
    embeddings: Option<PathBuf>,
    address: SocketAddr,
    limits: Limits,
    dtype: DType,
}

fn main() -> ExitCode {
    let limits = Limits { queue: 64, batch: 16, context: 4096, seed: 1 };
    let address = SocketAddr::from(([127, 0, 0, 1], 8080));
    PROGRAM.main(Options { model: None, embeddings: None, address, limits, dtype: DType::F32 }, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    output::only_prints(false);
    let models = open(options, &common.device()?)?;
    let names = [
        models.decoder.as_ref().map(|(name, _)| format!("chat and completions by {name}")),
        models.encoder.as_ref().map(|(name, _)| format!("embeddings by {name}")),
    ];
    let server = Server::start(models, &Limits { seed: common.seed, ..options.limits })?;
    let failed = |e: std::io::Error| Error::io(format!("cannot serve {}: {e}", options.address));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(failed)?.block_on(async {
        let listener = TcpListener::bind(options.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        names.iter().flatten().for_each(|name| println!("{name}"));
        println!("http://{address}");
        server.serve(listener, stopped()).await;
        println!("stopped");
        Ok(())
    })
}

/// The models of the command line.
fn open(options: &Options, device: &DeviceRef) -> Result<Models> {
    let open_options = OpenOptions::new().with_dtype(options.dtype);
    let encoder = |path: &Path| {
        let encoder = Encoder::open_with(path, &open_options, device)?;
        tell(encoder.notes());
        Ok::<_, Error>((name_of(path), encoder))
    };
    let mut models = Models::default();
    if let Some(path) = &options.embeddings {
        models.encoder = Some(encoder(path)?);
    }
    match &options.model {
        Some(path) if Encoder::knows(path) => {
            if options.embeddings.is_some() {
                return Err(Error::value("--model and --embeddings are both encoders")
                    .help("pass a decoder as --model, or leave one of them out"));
            }
            models.encoder = Some(encoder(path)?);
        }
        Some(path) => {
            let mut open_options = open_options.clone();
            if options.limits.context > USUAL_CONTEXT {
                open_options = open_options.with_context(options.limits.context);
            }
            let decoder = Decoder::open_with(path, &open_options, device)?;
            tell(decoder.notes());
            models.decoder = Some((name_of(path), decoder));
        }
        None if models.encoder.is_none() => {
            return Err(Error::value("no model").help(
                "--model PATH is a folder of Hugging Face, a GGUF file, or ORG/NAME of a model \
                 that was downloaded before",
            ));
        }
        None => {}
    }
    Ok(models)
}

/// The name of a model: its file or folder, or ORG/NAME as it was given.
fn name_of(path: &Path) -> String {
    let found = path.canonicalize().ok();
    let is_file = found.as_ref().is_some_and(|path| path.is_file());
    let name =
        found.as_ref().and_then(|path| if is_file { path.file_stem() } else { path.file_name() });
    name.map_or(path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Ready at SIGINT or SIGTERM. The next one ends the program at once.
async fn stopped() {
    signal().await;
    println!("stopping when the last answer is sent");
    tokio::spawn(async {
        signal().await;
        std::process::exit(130);
    });
}

async fn signal() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    if let Ok(mut terminate) =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    let _ = interrupt.await;
}
