//! What of the machine is not the pods': kept for the node's own daemons and for the operating
//! system.
//!
//! Written as upstream's `--kube-reserved` and `--system-reserved`:
//! `cpu=100m,memory=512Mi,ephemeral-storage=1Gi,pid=1000`.
//!
//! Source: `parseResourceList` in `cmd/kubelet/app/server.go`,
//! `pkg/kubelet/cm/node_container_manager_linux.go` at v1.37.

use std::str::FromStr;

use coracle_api::quantity::Quantity;

/// Amounts kept back; nothing by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Thousandths of a CPU.
    pub cpu_millis: i64,
    /// Memory.
    pub memory_bytes: i64,
    /// Disk where pods write.
    pub ephemeral_bytes: i64,
    /// Process IDs.
    pub pids: i64,
}

/// A text that is no list of reservations.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReservedError {
    /// Not `NAME=QUANTITY`.
    #[error("{part:?}: expected NAME=QUANTITY, such as cpu=100m or memory=512Mi")]
    Malformed {
        /// The part that cannot be read.
        part: String,
    },
    /// Nothing that can be reserved.
    #[error("cannot reserve {name:?} resource: expected cpu, memory, ephemeral-storage or pid")]
    Unknown {
        /// As given.
        name: String,
    },
    /// Less than nothing.
    #[error("resource quantity for {name:?} cannot be negative: {amount}")]
    Negative {
        /// Of what.
        name: String,
        /// As given.
        amount: String,
    },
}

impl FromStr for Reserved {
    type Err = ReservedError;

    fn from_str(text: &str) -> Result<Self, ReservedError> {
        let mut reserved = Self::default();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let malformed = || ReservedError::Malformed {
                part: part.to_owned(),
            };
            let (name, amount) = part.split_once('=').ok_or_else(malformed)?;
            let quantity: Quantity = amount.trim().parse().map_err(|_| malformed())?;
            if quantity.is_negative() {
                return Err(ReservedError::Negative {
                    name: name.to_owned(),
                    amount: amount.to_owned(),
                });
            }
            match name.trim() {
                "cpu" => reserved.cpu_millis = quantity.milli_value(),
                "memory" => reserved.memory_bytes = quantity.value(),
                "ephemeral-storage" => reserved.ephemeral_bytes = quantity.value(),
                "pid" => reserved.pids = quantity.value(),
                other => {
                    return Err(ReservedError::Unknown {
                        name: other.to_owned(),
                    });
                }
            }
        }
        Ok(reserved)
    }
}

impl Reserved {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            ephemeral_bytes: self.ephemeral_bytes.saturating_add(other.ephemeral_bytes),
            pids: self.pids.saturating_add(other.pids),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_read_as_upstream_writes_them() {
        let all = Reserved {
            cpu_millis: 100,
            memory_bytes: 512 << 20,
            ephemeral_bytes: 1 << 30,
            pids: 1000,
        };
        let cases = [
            ("", Ok(Reserved::default())),
            (
                "cpu=100m,memory=512Mi,ephemeral-storage=1Gi,pid=1000",
                Ok(all),
            ),
            (
                " cpu = 1 ",
                Ok(Reserved {
                    cpu_millis: 1000,
                    ..Reserved::default()
                }),
            ),
            (
                "cpu",
                Err(r#""cpu": expected NAME=QUANTITY, such as cpu=100m or memory=512Mi"#),
            ),
            (
                "cpu=x",
                Err(r#""cpu=x": expected NAME=QUANTITY, such as cpu=100m or memory=512Mi"#),
            ),
            (
                "cpu=-1",
                Err(r#"resource quantity for "cpu" cannot be negative: -1"#),
            ),
            (
                "gpu=1",
                Err(
                    r#"cannot reserve "gpu" resource: expected cpu, memory, ephemeral-storage or pid"#,
                ),
            ),
        ];
        for (text, expected) in cases {
            let got = text.parse::<Reserved>().map_err(|error| error.to_string());
            assert_eq!(got, expected.map_err(str::to_owned), "{text}");
        }
    }
}
