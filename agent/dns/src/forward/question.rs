//! A question and its answer, free of ids, flags and sizes: those belong to one exchange.

use std::mem;

use hickory_proto::{
    op::{Message, MessageType, OpCode, ResponseCode},
    rr::{Name, Record, RecordType},
};

/// What is asked of others. Its class is always IN.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    /// The name that is asked about. Case does not matter, and it counts as fully qualified.
    pub name: Name,
    /// The type of records that are asked for.
    pub record_type: RecordType,
    /// Whether signatures are wanted: the DO bit of EDNS.
    pub dnssec_ok: bool,
    /// The CD bit: whether an answer is wanted whose signatures are false.
    pub checking_disabled: bool,
}

/// What they have answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Whether the name is there, or why nobody knows.
    pub code: ResponseCode,
    /// The records asked for, and the aliases on the way to them.
    pub answers: Vec<Record>,
    /// Of a negative answer the SOA that says how long it holds.
    pub authorities: Vec<Record>,
    /// What the server thought useful besides. Never the OPT record: that is of one exchange.
    pub additionals: Vec<Record>,
    /// The AD bit: the server says that it has checked the signatures.
    pub authentic: bool,
}

// === impl Query ===

impl Query {
    /// The same question as every asker's: lower-cased and fully qualified.
    pub(crate) fn normalized(&self) -> Self {
        let mut name = self.name.to_lowercase();
        name.set_fqdn(true);
        Self {
            name,
            record_type: self.record_type,
            dnssec_ok: self.dnssec_ok,
            checking_disabled: self.checking_disabled,
        }
    }
}

// === impl Reply ===

impl Reply {
    /// Whether it says how things are (there are records, or there are none), and not that the
    /// server could not or would not find out.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.code, ResponseCode::NoError | ResponseCode::NXDomain)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        let others = self.authorities.iter().chain(&self.additionals);
        self.answers.iter().chain(others)
    }

    pub(crate) fn records_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        let others = self.authorities.iter_mut().chain(&mut self.additionals);
        self.answers.iter_mut().chain(others)
    }
}

impl From<Message> for Reply {
    fn from(mut message: Message) -> Self {
        Self {
            code: message.metadata.response_code,
            answers: mem::take(&mut message.answers),
            authorities: mem::take(&mut message.authorities),
            additionals: mem::take(&mut message.additionals),
            authentic: message.metadata.authentic_data,
        }
    }
}

/// With id 0 and without a question.
impl From<Reply> for Message {
    fn from(reply: Reply) -> Self {
        let mut message = Self::new(0, MessageType::Response, OpCode::Query);
        message.metadata.response_code = reply.code;
        message.metadata.authentic_data = reply.authentic;
        message.answers = reply.answers;
        message.authorities = reply.authorities;
        message.additionals = reply.additionals;
        message
    }
}
