//! Backup, verification, repair and information: what those who look after a store rely on.

mod backup;
mod beside;
mod info;
mod repair;

mod trimmed;
mod verify;
