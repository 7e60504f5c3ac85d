//! What a URL asks for, in upstream's terms.
