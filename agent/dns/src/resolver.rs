//! What is said to one question: what the zone has, what the asker's search path would lead to, and
//! what others say.
//!
//! ```text
//! name in the zone > its records
//!                  > another name > the zone's or others' records of that
//!                  > none, and asked for in the asker's own namespace > the first of its search path that is there
//! any other        > others
//! ```
//!
//! The third is what a resolver with `ndots:5` comes to by itself with its next four questions. It
//! is answered as an alias, so that the client learns which name it was.
//!
//! Source: `plugin/autopath` of CoreDNS; here the asker is known by its address.

use std::{net::IpAddr, sync::Arc};

use hickory_proto::{
    op::ResponseCode,
    rr::{
        Name, RData, Record, RecordType,
        rdata::{CNAME, HINFO},
    },
};

use crate::{
    directory::Directory,
    forward::{ForwardError, Forwarder, Query, Reply},
    wire::{Answer, Request},
    zone::{Found, TTL, Zone},
};

/// Aliases that are followed for one question.
const ALIASES: usize = 8;

/// Answers questions. Owned by nobody in particular: it holds no state but others' answers.
pub struct Resolver {
    /// The cluster's.
    pub zone: Zone,
    /// Where its names are looked up.
    pub names: Arc<dyn Directory>,
    /// Everything else.
    pub others: Forwarder,
    /// What the node's own search path adds to that of pods.
    pub searches: Vec<Name>,
}

/// What is found of a name without asking others.
enum Known {
    Answer(Answer),
    /// Others know; the records lead there.
    Others {
        leading: Vec<Record>,
        name: Name,
    },
}

impl Resolver {
    /// The answer. Ready at once where nobody has to be asked.
    pub(crate) async fn answer(&self, asker: IpAddr, request: &Request) -> Answer {
        let question = &request.question;
        let (name, of) = (question.name(), question.query_type());
        match of {
            // Nobody needs all there is, but for floods of others. Source: RFC 8482.
            RecordType::ANY => return minimal(name),
            RecordType::AXFR | RecordType::IXFR => return Answer::refused(ResponseCode::Refused),
            _ => {}
        }
        let query = Query {
            name: name.clone(),
            record_type: of,
            dnssec_ok: request.wants_signatures(),
            checking_disabled: request.wants_unchecked(),
        };
        let answer = self.look_up(asker, &query).await;
        // The code is about where an alias leads; the name that was asked for is there (RFC 6604).
        if answer.code != ResponseCode::NXDomain || !answer.answers.is_empty() {
            return answer;
        }
        match self.along_search_path(asker, &query).await {
            Some(found) => found,
            None => answer,
        }
    }

    /// One name, wherever it is.
    async fn look_up(&self, asker: IpAddr, query: &Query) -> Answer {
        match self.known(&query.name, query.record_type) {
            Known::Answer(answer) => answer,
            Known::Others { leading, name } => {
                let query = Query { name, ..*query };
                let replied = self.others.resolve(asker, &query).await;
                others(leading, replied, &query)
            }
        }
    }

    fn known(&self, name: &Name, of: RecordType) -> Known {
        let (mut name, mut leading) = (name.clone(), Vec::new());
        for _ in 0..ALIASES {
            let mut answer = Answer {
                is_own: true,
                ..Answer::default()
            };
            match self.zone.find(&*self.names, &name, of) {
                Found::Records {
                    answers,
                    additionals,
                } => {
                    answer.additionals = additionals;
                    leading.extend(answers);
                }
                Found::Alias { record, .. } if of == RecordType::CNAME => leading.push(*record),
                Found::Alias { record, target } => {
                    leading.push(*record);
                    name = target;
                    continue;
                }
                Found::NoData => answer.authorities = vec![self.zone.start_of_authority()],
                Found::NoName => {
                    answer.authorities = vec![self.zone.start_of_authority()];
                    // An alias is there, whatever it leads to.
                    answer.code = ResponseCode::NXDomain;
                }
                Found::Unknown => return Known::Answer(Answer::refused(ResponseCode::ServFail)),
                Found::Foreign => return Known::Others { leading, name },
            }
            answer.answers = leading;
            return Known::Answer(answer);
        }
        Known::Answer(Answer::refused(ResponseCode::ServFail))
    }

    /// What the asker would find with the rest of its search path. A name without any address is
    /// passed by, as by most resolvers; one with addresses of the other family alone is the one
    /// that is meant: who asks for both must not be told of two.
    async fn along_search_path(&self, asker: IpAddr, query: &Query) -> Option<Answer> {
        if !matches!(query.record_type, RecordType::A | RecordType::AAAA) {
            return None;
        }
        let asked = self.without_own_namespace(asker, &query.name)?;
        let services = Name::from_ascii("svc")
            .ok()?
            .append_domain(self.zone.origin());
        let ends = [services.ok()?, self.zone.origin().clone()].into_iter();
        let mut empty = None;
        for end in ends
            .chain(self.searches.iter().cloned())
            .chain([Name::root()])
        {
            // One that would be too long is none.
            let Ok(name) = asked.clone().append_domain(&end) else {
                continue;
            };
            let next = Query {
                name: name.clone(),
                ..*query
            };
            let mut answer = self.look_up(asker, &next).await;
            match answer.code {
                ResponseCode::NXDomain => continue,
                ResponseCode::NoError => {}
                // The client will see for itself.
                _ => return None,
            }
            let has_address = answer.has(next.record_type);
            let alias = RData::CNAME(CNAME(name));
            let alias = Record::from_rdata(query.name.clone(), TTL, alias);
            answer.answers.insert(0, alias);
            if has_address || self.has_other_family(asker, &next).await? {
                return Some(answer);
            }
            empty.get_or_insert(answer);
        }
        empty
    }

    /// Whether there are addresses of the family that was not asked for. `None`: nobody says.
    async fn has_other_family(&self, asker: IpAddr, query: &Query) -> Option<bool> {
        let other = match query.record_type {
            RecordType::A => RecordType::AAAA,
            _ => RecordType::A,
        };
        let query = Query {
            record_type: other,
            name: query.name.clone(),
            ..*query
        };
        let answer = self.look_up(asker, &query).await;
        match answer.code {
            ResponseCode::NoError | ResponseCode::NXDomain => Some(answer.has(other)),
            _ => None,
        }
    }

    /// What was asked for in the asker's own namespace.
    fn without_own_namespace(&self, asker: IpAddr, name: &Name) -> Option<Name> {
        if !self.zone.contains(name) {
            return None;
        }
        let namespace = self.names.namespace_of(asker)?;
        let end = Name::from_labels([namespace.as_bytes(), b"svc"]).ok()?;
        let end = end.append_domain(self.zone.origin()).ok()?;
        let ends_there = end.zone_of(name);
        let count = name.num_labels().checked_sub(end.num_labels())?;
        let labels = name.iter().take(usize::from(count));
        (ends_there && count > 0)
            .then(|| Name::from_labels(labels).ok())?
            .map(|mut name| {
                name.set_fqdn(false);
                name
            })
    }
}

/// What others have said, behind what led there.
fn others(mut leading: Vec<Record>, replied: Result<Reply, ForwardError>, query: &Query) -> Answer {
    match replied {
        // One above 15 is of our own EDNS with that server. A client without EDNS would see the
        // lower bits alone, and those of 16 say that all is well.
        Ok(reply) if reply.code.high() > 0 => Answer::refused(ResponseCode::ServFail),
        Ok(reply) => {
            leading.extend(reply.answers);
            Answer {
                code: reply.code,
                is_own: false,
                answers: leading,
                authorities: reply.authorities,
                additionals: reply.additionals,
            }
        }
        Err(error) => {
            tracing::debug!(
                name = %query.name,
                error = %coracle_telemetry::ErrorChain(&error),
                "a name of others is not known"
            );
            Answer::refused(match error {
                ForwardError::AskerBusy { .. } | ForwardError::Busy { .. } => ResponseCode::Refused,
                ForwardError::NoServers | ForwardError::NoAnswer { .. } => ResponseCode::ServFail,
            })
        }
    }
}

/// The answer to whoever asks for everything.
fn minimal(name: &Name) -> Answer {
    let nothing = HINFO::new("RFC8482".to_owned(), String::new());
    Answer {
        answers: vec![Record::from_rdata(name.clone(), TTL, RData::HINFO(nothing))],
        ..Answer::default()
    }
}

#[cfg(test)]
mod tests;
