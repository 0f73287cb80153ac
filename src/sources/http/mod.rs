//! One bounded HTTP request at a time.
