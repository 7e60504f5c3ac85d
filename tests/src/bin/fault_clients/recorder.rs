//! The history's file.

use std::{
    cell::RefCell,
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
};

use anyhow::{Context as _, Result};
use coracle_tests::faults::history::{Clock, Micros, Record};

/// Writes the history, a line each.
pub(crate) struct Recorder {
    out: RefCell<BufWriter<File>>,
    clock: Clock,
}

impl Recorder {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Self {
            out: RefCell::new(BufWriter::new(file)),
            clock: Clock::start(),
        })
    }

    pub(crate) fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Keeps a line. What cannot be written ends the program: a history with a hole proves nothing.
    pub(crate) fn keep(&self, record: &Record) {
        let line = serde_json::to_string(record).expect("a record is JSON");
        writeln!(self.out.borrow_mut(), "{line}").expect("the history can be written");
    }

    /// Keeps what nobody should be told.
    pub(crate) fn odd(&self, what: String) {
        eprintln!("{what}");
        self.keep(&Record::Odd(what));
    }

    pub(crate) fn finish(&self) -> Result<()> {
        self.out.borrow_mut().flush().context("the history")
    }
}
