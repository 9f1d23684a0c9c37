//! After a fault: what really happened, and whether the GPU still works.

use super::CudaDevice;
use super::sharing::{Arrangement, base_environment};
use crate::device::Fault;
use crate::devices::processes::Helper;
use crate::worker::message::{Reply, Request};
use elastico_core::Outcome;
use std::time::Instant;

impl CudaDevice {
    /// Turns a fault of a session whose workers are gone into the gravest thing that is behind it, and leaves the device
    /// as a fresh session needs it.
    pub(super) fn explain(&mut self, fault: Fault, arrangement: &Arrangement) -> Fault {
        let says_all = speaks_for_itself(&fault);
        let mut fault = self.blame(fault, arrangement);
        if !says_all
            && fault.outcome != Outcome::DeviceLost
            && let Err(probe) = self.probe()
        {
            fault.outcome = Outcome::DeviceLost;
            fault.detail.push_str(&format!("; and the GPU does not answer any more: {}", probe.detail));
        }
        fault
    }

    /// As [`explain`](Self::explain), without trying whether the GPU still works.
    pub(super) fn blame(&mut self, fault: Fault, arrangement: &Arrangement) -> Fault {
        if speaks_for_itself(&fault) {
            return fault;
        }
        let mut fault = fault;
        if let Some(xid) = self.poller.xid(true) {
            let outcome = if fault.outcome == Outcome::DeviceLost { fault.outcome } else { xid.outcome };
            let detail = if fault.detail == xid.detail {
                xid.detail
            } else {
                format!("{}; {}", xid.detail, fault.detail)
            };
            fault = Fault { outcome, detail };
        }
        if arrangement.is_mps() {
            // A client that died may have spoilt the server for all that come after it.
            if let Some(daemon) = self.daemon.take() {
                let was_alive = daemon.is_alive();
                let tail = daemon.log_tail();
                if let Err(error) = daemon.stop() {
                    tracing::warn!(%error, "the MPS daemon does not stop");
                }
                let is_its_fault = !was_alive || fault.outcome == Outcome::Hang;
                if is_its_fault && fault.outcome != Outcome::DeviceLost {
                    fault.outcome = Outcome::MpsFault;
                }
                if fault.outcome == Outcome::MpsFault && !tail.trim().is_empty() {
                    fault.detail.push_str("; MPS log: ");
                    fault.detail.push_str(tail.trim());
                }
            }
        }
        fault
    }

    /// Runs one small kernel in a fresh process away from MPS.
    fn probe(&self) -> Result<(), Fault> {
        let mut environment = base_environment(Some(&self.facts.uuid));
        environment.extend(self.no_mps());
        let request = Request::Probe(self.cuda_work());
        let mut helper = Helper::start("the probe".to_owned(), &self.command, &environment, &request)?;
        let deadline = Instant::now() + self.options.context_timeout;
        helper.greet(deadline)?;
        match helper.reply(deadline, "run a kernel")? {
            Reply::Probed(_) => Ok(()),
            other => Err(helper.unexpected(other)),
        }
    }
}

/// These say for themselves what happened, and leave nothing broken.
const fn speaks_for_itself(fault: &Fault) -> bool {
    matches!(fault.outcome, Outcome::Oom | Outcome::OomPredicted | Outcome::Unsupported)
}
