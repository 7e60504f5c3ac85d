//! Requests and answers as bytes.
//!
//! What is answered at all: a query with one question. Of anything else as much is read as an error
//! needs to reach its sender, and what is an answer itself is never answered: two servers would
//! keep each other busy.
//!
//! Source: RFC 1035, RFC 6891 (EDNS).

use hickory_proto::{
    op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode},
    rr::{DNSClass, Record, RecordType},
    serialize::binary::{BinDecodable, BinEncodable, BinEncoder},
};

/// Of a datagram, where nobody says otherwise.
const PLAIN_BYTES: u16 = 512;
/// Of a datagram in any case: what passes every link unbroken.
///
/// Source: DNS flag day 2020.
pub(crate) const MOST_BYTES: u16 = 1232;
const HEADER_BYTES: usize = 12;

/// A request that can be answered.
#[derive(Debug)]
pub(crate) struct Request {
    metadata: Metadata,
    /// As the client wrote it: the answer repeats its letters.
    pub(crate) question: Query,
    edns: Option<Edns>,
}

/// Why a request gets no answer of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Nobody could be meant by an answer.
    Drop,
    /// The bytes of an error.
    Error(Vec<u8>),
}

/// What is said to a question.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    pub(crate) code: ResponseCode,
    /// It is known here, and nobody was asked.
    pub(crate) is_own: bool,
    pub(crate) answers: Vec<Record>,
    pub(crate) authorities: Vec<Record>,
    pub(crate) additionals: Vec<Record>,
}

impl Answer {
    /// A code and nothing else.
    pub(crate) fn refused(code: ResponseCode) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    /// Whether there are records of that type.
    pub(crate) fn has(&self, of: RecordType) -> bool {
        self.answers.iter().any(|one| one.record_type() == of)
    }
}

impl Request {
    /// Whether its sender wants signatures, if there are any.
    pub(crate) fn wants_signatures(&self) -> bool {
        self.edns
            .as_ref()
            .is_some_and(|edns| edns.flags().dnssec_ok)
    }

    /// Whether its sender takes what has false signatures: it checks them itself.
    pub(crate) fn wants_unchecked(&self) -> bool {
        self.metadata.checking_disabled
    }

    /// How long a datagram may be that answers it.
    pub(crate) fn most_bytes(&self) -> usize {
        let asked = self.edns.as_ref().map_or(PLAIN_BYTES, Edns::max_payload);
        usize::from(asked.clamp(PLAIN_BYTES, MOST_BYTES))
    }
}

/// Reads a request.
///
/// # Errors
/// What it gets instead of an answer.
pub(crate) fn read(bytes: &[u8]) -> Result<Request, Unread> {
    let header = bytes.get(..HEADER_BYTES).ok_or(Unread::Drop)?;
    if header[2] & 0x80 != 0 {
        return Err(Unread::Drop);
    }
    let error = |code| Unread::Error(bare(header, code));
    if header[2] & 0x78 != 0 {
        return Err(error(ResponseCode::NotImp));
    }
    // Before they are read, for room is made for as many as there are said to be.
    if header[4..6] != [0, 1] {
        return Err(error(ResponseCode::FormErr));
    }
    let message = Message::from_bytes(bytes).map_err(|_| error(ResponseCode::FormErr))?;
    let Message {
        metadata,
        mut queries,
        edns,
        ..
    } = message;
    let (Some(question), true) = (queries.pop(), queries.is_empty()) else {
        return Err(error(ResponseCode::FormErr));
    };
    let request = Request {
        metadata,
        question,
        edns,
    };
    let refuse = |code| {
        let bytes = write(&request, Answer::refused(code), request.most_bytes());
        bytes.map_or(Unread::Drop, Unread::Error)
    };
    if request.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
        return Err(refuse(ResponseCode::BADVERS));
    }
    if request.question.query_class() != DNSClass::IN {
        return Err(refuse(ResponseCode::Refused));
    }
    Ok(request)
}

/// A header alone, with the sender's number.
fn bare(header: &[u8], code: ResponseCode) -> Vec<u8> {
    let mut answer = vec![0; HEADER_BYTES];
    answer[..2].copy_from_slice(&header[..2]);
    // It is an answer; opcode and RD are the request's.
    answer[2] = 0x80 | (header[2] & 0x79);
    answer[3] = code.low();
    answer
}

/// Writes an answer of at most so many bytes; what does not fit is cut off, and the client told to
/// ask again by a connection. `None` if the answer cannot be written at all.
pub(crate) fn write(request: &Request, answer: Answer, most: usize) -> Option<Vec<u8>> {
    let mut metadata = request.metadata;
    metadata.message_type = MessageType::Response;
    metadata.authoritative = answer.is_own;
    // Of the answer, whatever the request had there.
    metadata.truncation = false;
    metadata.recursion_available = true;
    metadata.authentic_data = false;
    metadata.response_code = answer.code;
    let mut message = Message::new(metadata.id, MessageType::Response, OpCode::Query);
    message.metadata = metadata;
    message.add_query(request.question.clone());
    message.answers = answer.answers;
    message.authorities = answer.authorities;
    message.additionals = answer.additionals;
    message.edns = request.edns.as_ref().map(|asked| {
        let mut edns = Edns::new();
        edns.set_max_payload(MOST_BYTES).set_version(0);
        edns.set_dnssec_ok(asked.flags().dnssec_ok);
        edns
    });
    let whole = message.to_bytes().ok()?;
    if whole.len() <= most {
        return Some(whole);
    }
    // Additional records are a courtesy, whose absence is none of the client's loss.
    message.additionals.clear();
    let without = message.to_bytes().ok()?;
    if without.len() <= most {
        return Some(without);
    }
    message.authorities.clear();
    message.metadata.truncation = true;
    cut(&mut message, most)
}

/// As many of the answers as fit.
fn cut(message: &mut Message, most: usize) -> Option<Vec<u8>> {
    let all = std::mem::take(&mut message.answers);
    let (mut fits, mut too_many) = (0, all.len() + 1);
    let mut written = None;
    while fits + 1 < too_many || written.is_none() {
        let middle = fits.midpoint(too_many);
        message.answers = all[..middle.min(all.len())].to_vec();
        let mut bytes = Vec::with_capacity(most);
        let mut encoder = BinEncoder::new(&mut bytes);
        message.emit(&mut encoder).ok()?;
        if bytes.len() <= most {
            fits = middle;
            written = Some(bytes);
        } else if middle == 0 {
            return None;
        } else {
            too_many = middle;
        }
    }
    written
}

#[cfg(test)]
mod tests;
