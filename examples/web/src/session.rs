//! The functions that JavaScript calls: a session opens an engine and holds its runs.

use crate::digits::{Arch, Digits};
use crate::doctor;
use crate::names::Generator;
use crate::slot::Slot;
use std::rc::Rc;
use std::time::Duration;
use teeny_core::{DeviceRef, Error, Result};
use teeny_nn::data::digits;
use teeny_nn::prelude::*;
use teeny_wgpu::{Options, Wgpu};
use wasm_bindgen::prelude::*;

type JsResult<T> = std::result::Result<T, Failure>;

/// An error for JavaScript: the name is the kind, `message` the message without help lines, which
/// are for programmers, and `report` all of it.
pub struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(error)
    }
}

impl From<Failure> for JsValue {
    fn from(Failure(error): Failure) -> JsValue {
        let value = js_sys::Error::new(error.message());
        value.set_name(&format!("{:?}", error.kind()));
        let (key, report) = (JsValue::from_str("report"), JsValue::from_str(&error.to_string()));
        // without the property the message remains
        let _ = js_sys::Reflect::set(&value, &key, &report);
        value.into()
    }
}

/// Runs before any other function: the text of a panic, which is only `unreachable` to JavaScript,
/// goes to the global variable `panicText`.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|info| {
        let text = JsValue::from_str(&info.to_string());
        // without the variable the message of the trap remains
        let _ = js_sys::Reflect::set(&js_sys::global(), &JsValue::from_str("panicText"), &text);
    }));
}

/// The engine called `name`: `cpu` or `webgpu`.
///
/// # Errors
/// If the engine does not exist, or the browser offers no adapter.
pub async fn open(name: &str) -> Result<DeviceRef> {
    match name {
        "cpu" => Ok(doctor::cpu()),
        "webgpu" => {
            let gpu: DeviceRef = Wgpu::new_async(&Options::default()).await?;
            Ok(gpu)
        }
        _ => Err(Error::value(format!("expected engine cpu or webgpu, got {name:?}"))),
    }
}

/// The report of [`doctor::examine`]. `turn` is called between cases and returns a promise, so that
/// the caller can answer messages.
#[wasm_bindgen]
pub async fn examine(engine: String, seconds: f64, turn: js_sys::Function) -> JsResult<String> {
    let pause = || async {
        if let Ok(promise) = turn.call0(&JsValue::NULL) {
            // a promise that is rejected ends the pause as well
            let promise = js_sys::Promise::from(promise);
            let _ = wasm_bindgen_futures::JsFuture::from(promise).await;
        }
    };
    Ok(doctor::examine(&engine, seconds, pause).await?)
}

/// Progress of a run.
#[wasm_bindgen(getter_with_clone)]
pub struct Progress {
    /// The losses of the latest steps.
    pub losses: Vec<f32>,
    /// Steps taken.
    pub step: u32,
    /// Epochs that have ended.
    pub epoch: u32,
    /// The share of the test images that are classified correctly, if an epoch has ended.
    pub accuracy: Option<f64>,
}

/// The weights of the first layer as pictures.
#[wasm_bindgen(getter_with_clone)]
pub struct Pictures {
    /// The values, picture by picture, row by row.
    pub values: Vec<f32>,
    /// The width and height of a picture.
    pub side: u32,
}

/// An engine with a run of digits and one of names.
#[wasm_bindgen]
pub struct Session {
    engine: DeviceRef,
    device: DeviceRef,
    data: Rc<Mnist>,
    digits: Slot<Digits>,
    names: Slot<Generator>,
}

#[wasm_bindgen]
impl Session {
    /// A session on `engine`, `cpu` or `webgpu`, with a run of `arch`, `mlp` or `cnn`.
    pub async fn open(engine: String, arch: String, lr: f64) -> JsResult<Session> {
        let engine = open(&engine).await?;
        let device: DeviceRef = Autograd::new(engine.clone());
        let data = Rc::new(digits::load()?);
        let run = Digits::new(Arch::named(&arch)?, lr, data.clone(), &device)?;
        let names = Slot::new(Generator::new(&device)?);
        Ok(Session { engine, device, data, digits: Slot::new(run), names })
    }

    /// The engine in words.
    pub fn description(&self) -> String {
        self.engine.info().description
    }

    /// Starts a run of `arch` from its first step.
    pub fn reset(&self, arch: String, lr: f64) -> JsResult<()> {
        let run = Digits::new(Arch::named(&arch)?, lr, self.data.clone(), &self.device)?;
        *self.digits.lend()? = run;
        Ok(())
    }

    /// The network of the run, its parameters, learning rate, step and epoch, as JSON.
    pub fn state(&self) -> JsResult<String> {
        let run = self.digits.lend()?;
        let Position { step, epoch, .. } = run.position();
        Ok(format!(
            r#"{{"arch":"{}","parameters":{},"lr":{},"step":{step},"epoch":{epoch}}}"#,
            run.arch().name(),
            run.parameters(),
            run.lr(),
        ))
    }

    /// Sets the learning rate of the next steps.
    pub fn set_lr(&self, lr: f64) -> JsResult<()> {
        self.digits.lend()?.set_lr(lr);
        Ok(())
    }

    /// Trains the classifier for some milliseconds, at most to the end of the epoch.
    pub async fn train(&self, milliseconds: f64) -> JsResult<Progress> {
        let mut run = self.digits.lend()?;
        let progress = run.train(Duration::from_secs_f64(milliseconds / 1e3)).await?;
        let Position { step, epoch, .. } = run.position();
        let (losses, accuracy) = (progress.losses, progress.accuracy);
        Ok(Progress { losses, step: step as u32, epoch: epoch as u32, accuracy })
    }

    /// Takes `count` steps and returns their losses; for benchmarks.
    pub async fn steps(&self, count: u32) -> JsResult<Vec<f32>> {
        Ok(self.digits.lend()?.steps(count as usize).await?)
    }

    /// The share of the test images that are classified correctly.
    pub async fn accuracy(&self) -> JsResult<f64> {
        Ok(self.digits.lend()?.accuracy().await?)
    }

    /// The probability of each digit for an image of 28 x 28 with ink from 0 to 1.
    pub async fn predict(&self, image: Vec<f32>) -> JsResult<Vec<f32>> {
        Ok(self.digits.lend()?.predict(&image).await?)
    }

    /// The weights of the first layer.
    pub async fn pictures(&self) -> JsResult<Pictures> {
        let (values, side) = self.digits.lend()?.pictures().await?;
        Ok(Pictures { values, side: side as u32 })
    }

    /// A checkpoint file of the run.
    pub async fn save(&self) -> JsResult<Vec<u8>> {
        Ok(self.digits.lend()?.save().await?)
    }

    /// Replaces the run with the run of a checkpoint file. After an error nothing has changed.
    pub fn load(&self, file: Vec<u8>) -> JsResult<()> {
        let run = Digits::load(file, self.data.clone(), &self.device)?;
        *self.digits.lend()? = run;
        Ok(())
    }

    /// The number of test images.
    pub fn test_images(&self) -> u32 {
        self.data.test.len() as u32
    }

    /// Test image `i`: 784 bytes of ink, then its digit.
    pub fn test_image(&self, i: u32) -> JsResult<Vec<u8>> {
        let (images, i) = (&self.data.test, i as usize);
        let (area, count) = (images.area(), images.len());
        if i >= count {
            return Err(Error::index(format!("no test image {i}; there are {count}")).into());
        }
        let mut bytes = images.pixels[i * area..(i + 1) * area].to_vec();
        bytes.push(images.labels[i]);
        Ok(bytes)
    }

    /// Trains the generator of names for some milliseconds.
    pub async fn train_names(&self, milliseconds: f64) -> JsResult<Progress> {
        let mut run = self.names.lend()?;
        let losses = run.train(Duration::from_secs_f64(milliseconds / 1e3)).await?;
        Ok(Progress { losses, step: run.step() as u32, epoch: 0, accuracy: None })
    }

    /// Names from the generator; a `*` follows those that it has learnt from.
    pub async fn sample_names(&self, count: u32) -> JsResult<Vec<String>> {
        Ok(self.names.lend()?.sample(count as usize).await?)
    }

    /// The number of names that the generator learns from.
    pub fn known_names(&self) -> JsResult<u32> {
        Ok(self.names.lend()?.count() as u32)
    }
}
