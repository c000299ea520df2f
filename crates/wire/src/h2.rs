//! The client side of HTTP/2 (RFC 9113) without sockets or I/O, and its header compression (HPACK,
//! RFC 7541).

pub mod hpack;
