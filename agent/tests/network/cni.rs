//! Attaching pods through the agent's CniNetwork.
