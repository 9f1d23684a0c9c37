//! The `elastico` command as a user meets it.

mod architecture;
mod artefacts;
mod bad_input;
mod doctor;
mod exec;
mod few_shot;
mod gpu_campaign;
mod next;
mod road;
mod serve;
mod simulate;
mod stand_ins;
mod trace;
