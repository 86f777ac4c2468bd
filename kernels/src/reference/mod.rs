//! The float64 definition of each op with a body, to be read as its meaning and used to judge every implementation.

pub mod fa_fdot2;
