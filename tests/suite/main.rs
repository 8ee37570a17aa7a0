//! The integration tests, one binary: each module is one promise of the product.
