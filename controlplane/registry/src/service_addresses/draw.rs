//! Which address and which ports a Service gets: those it asks for if they are free, else drawn
//! ones. They are taken in the same breath: whoever asks next must not get them, too.

use std::net::{IpAddr, Ipv4Addr};

use coracle_api::{
    meta,
    status::{FieldErrors, Status},
};
use serde_json::{Value, json};

use super::{
    ServiceAddresses,
    taken::{Asker, Holder, Taken, Uses},
};
use crate::service_ips;

/// Random draws before the range is searched in order.
const DRAWS: usize = 32;

impl ServiceAddresses {
    pub(super) fn fill_address(
        &self,
        asker: Asker<'_>,
        new: &mut Value,
        taken: &mut Taken,
        uses: &mut Uses,
    ) -> Result<(), Status> {
        let spec = &new["spec"];
        if spec["type"] == "ExternalName" {
            return Ok(());
        }
        let asked = meta::get_str(spec, &["clusterIP"]);
        if asked == "None" {
            fill_family(&mut new["spec"], "None");
            return Ok(());
        }
        let address = if asked.is_empty() {
            let address = self
                .draw_address(taken)
                .ok_or_else(|| Status::internal("failed to allocate a serviceIP: range is full"))?;
            // Taken before it is written: whoever asks next must not get it, too.
            uses.addresses.push(address);
            taken
                .addresses
                .insert(address, Holder::Reserved(asker.reservation));
            address
        } else {
            self.take_address(asker, asked, taken, uses)
                .map_err(|why| {
                    let mut errors = FieldErrors::default();
                    errors.invalid(
                        "spec.clusterIPs",
                        &json!([asked]),
                        format!("failed to allocate IP {asked}: {why}"),
                    );
                    Status::invalid(&self.services.gvk, meta::name(new), errors)
                })?
        };
        fill_family(&mut new["spec"], &address.to_string());
        Ok(())
    }

    fn take_address(
        &self,
        asker: Asker<'_>,
        asked: &str,
        taken: &mut Taken,
        uses: &mut Uses,
    ) -> Result<Ipv4Addr, String> {
        let in_range = |address: &Ipv4Addr| {
            self.range.contains(address)
                && *address != self.range.network()
                && *address != self.range.broadcast()
        };
        let address = match asked.parse() {
            Ok(IpAddr::V4(address)) if in_range(&address) => address,
            _ => {
                return Err(format!(
                    "the provided IP ({asked}) is not in the valid range. The range of valid IPs is {}",
                    self.range
                ));
            }
        };
        match taken.addresses.get(&address) {
            Some(holder) if asker.is(holder) => {}
            Some(_) => return Err("provided IP is already allocated".to_owned()),
            None if self.has_object(address) => {
                return Err("provided IP is already allocated".to_owned());
            }
            None => {
                uses.addresses.push(address);
                taken
                    .addresses
                    .insert(address, Holder::Reserved(asker.reservation));
            }
        }
        Ok(address)
    }

    /// Whether somebody has made an IPAddress object for it that no Service has.
    fn has_object(&self, address: Ipv4Addr) -> bool {
        self.objects
            .as_ref()
            .is_some_and(|objects| objects.cache.get(&service_ips::key(address)).is_some())
    }

    fn draw_address(&self, taken: &Taken) -> Option<Ipv4Addr> {
        let base = u32::from(self.range.network());
        // Without network and broadcast address; the first is the `kubernetes` Service's.
        let last = u32::from(self.range.broadcast()).checked_sub(1)?;
        let first = base + 2;
        let size = last.checked_sub(first)? + 1;
        let lower = (size / 16).clamp(16, 256).min(size.saturating_sub(1));
        let is_free = |address: &Ipv4Addr| {
            !taken.addresses.contains_key(address) && !self.has_object(*address)
        };
        let draw = || Ipv4Addr::from(first + lower + rand::random::<u32>() % (size - lower));
        (0..DRAWS).map(|_| draw()).find(is_free).or_else(|| {
            (first + lower..=last)
                .chain(first..first + lower)
                .map(Ipv4Addr::from)
                .find(is_free)
        })
    }

    pub(super) fn fill_ports(
        &self,
        asker: Asker<'_>,
        new: &mut Value,
        taken: &mut Taken,
        uses: &mut Uses,
    ) -> Result<(), Status> {
        let spec = &mut new["spec"];
        let needs = match spec["type"].as_str() {
            Some("NodePort") => true,
            Some("LoadBalancer") => spec["allocateLoadBalancerNodePorts"] != json!(false),
            _ => false,
        };
        let mut errors = FieldErrors::default();
        for (index, port) in spec["ports"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let asked = port["nodePort"].as_i64().unwrap_or(0);
            if asked == 0 && needs {
                let Some(drawn) = self.draw_port(taken) else {
                    return Err(Status::internal(
                        "failed to allocate a nodePort: range is full",
                    ));
                };
                taken
                    .ports
                    .insert(drawn, Holder::Reserved(asker.reservation));
                uses.ports.push(drawn);
                port["nodePort"] = drawn.into();
            } else if asked != 0
                && let Err(why) = self.take_port(asker, asked, taken, uses)
            {
                errors.invalid(format!("spec.ports[{index}].nodePort"), &json!(asked), why);
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&self.services.gvk, meta::name(new), errors))
    }

    fn take_port(
        &self,
        asker: Asker<'_>,
        asked: i64,
        taken: &mut Taken,
        uses: &mut Uses,
    ) -> Result<(), String> {
        let Some(port) = u16::try_from(asked)
            .ok()
            .filter(|port| self.ports.contains(port))
        else {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                self.ports.start(),
                self.ports.end()
            ));
        };
        match taken.ports.get(&port) {
            // Also its own TCP and UDP port of the same number.
            Some(holder) if asker.is(holder) => Ok(()),
            Some(_) => Err("provided port is already allocated".to_owned()),
            None => {
                uses.ports.push(port);
                taken
                    .ports
                    .insert(port, Holder::Reserved(asker.reservation));
                Ok(())
            }
        }
    }

    fn draw_port(&self, taken: &Taken) -> Option<u16> {
        let (first, last) = (*self.ports.start(), *self.ports.end());
        let size = u32::from(last.checked_sub(first)?) + 1;
        let draw =
            || first.saturating_add(u16::try_from(rand::random::<u32>() % size).unwrap_or(0));
        let is_free = |port: &u16| !taken.ports.contains_key(port);
        (0..DRAWS)
            .map(|_| draw())
            .find(is_free)
            .or_else(|| self.ports.clone().find(is_free))
    }
}

/// The fields that go with `clusterIP`.
fn fill_family(spec: &mut Value, address: &str) {
    spec["clusterIP"] = address.into();
    if spec["clusterIPs"][0] != *address {
        spec["clusterIPs"] = json!([address]);
    }
    if spec["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if !spec["ipFamilyPolicy"].is_string() {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
}
