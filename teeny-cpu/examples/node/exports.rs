//! The functions of the module: tasks, workloads and the last report.

use super::{Outcome, fuzz, oneop, suite, workloads};
use std::cell::RefCell;

thread_local! {
    static REPORT: RefCell<String> = const { RefCell::new(String::new()) };
    static WORK: RefCell<Option<workloads::Work>> = const { RefCell::new(None) };
}

fn report(text: String) {
    REPORT.set(text);
}

/// Keeps the report and returns 1 for success.
fn done((passed, text): Outcome) -> u32 {
    report(text);
    u32::from(passed)
}

/// Makes the message of a panic, which ends the module, the report.
fn report_panics() {
    std::panic::set_hook(Box::new(|info| report(info.to_string())));
}

/// The conformance suite.
#[unsafe(no_mangle)]
extern "C" fn run_suite() -> u32 {
    report_panics();
    done(suite())
}

/// Random graphs.
#[unsafe(no_mangle)]
extern "C" fn run_fuzz(cases: usize) -> u32 {
    report_panics();
    done(fuzz(cases))
}

/// Random single operations.
#[unsafe(no_mangle)]
extern "C" fn run_oneop(cases: usize) -> u32 {
    report_panics();
    done(oneop(cases))
}

/// Prepares workload `i`, whose name is the report. Returns 0 if it does not exist.
#[unsafe(no_mangle)]
extern "C" fn prepare(i: usize) -> u32 {
    report_panics();
    let Some((name, make)) = workloads::ALL.get(i) else { return 0 };
    match make() {
        Ok(work) => {
            WORK.set(Some(work));
            done((true, name.to_string()))
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Does the work of the prepared workload once.
#[unsafe(no_mangle)]
extern "C" fn work() {
    WORK.with_borrow_mut(|work| {
        let work = work.as_mut().expect("a prepared workload");
        work().unwrap_or_else(|error| panic!("{error}"));
    });
}

/// Where the last report is in memory.
#[unsafe(no_mangle)]
extern "C" fn report_start() -> *const u8 {
    REPORT.with_borrow(|text| text.as_ptr())
}

/// The bytes of the last report.
#[unsafe(no_mangle)]
extern "C" fn report_len() -> usize {
    REPORT.with_borrow(|text| text.len())
}
