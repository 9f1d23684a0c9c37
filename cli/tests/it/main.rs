//! The `elastico` command as a user meets it.

mod architecture;
mod bad_input;
mod doctor;
mod exec;
mod gpu_campaign;
mod next;
mod road;
mod stand_ins;
