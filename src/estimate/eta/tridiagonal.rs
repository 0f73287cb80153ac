//! Symmetric matrices in which only neighbours are coupled: all that a random walk needs, in time linear in its size.

/// A factor: its diagonal, and what is below it.
pub(super) type Factor = (Vec<f64>, Vec<f64>);

/// Cholesky's factor of a tridiagonal matrix: its diagonal and what is below it.
pub(super) fn factorise(diagonal: &[f64], off: &[f64]) -> Factor {
    let (mut main, mut below) = (Vec::with_capacity(diagonal.len()), Vec::with_capacity(off.len()));
    let mut carried = 0.0_f64;
    for (place, value) in diagonal.iter().enumerate() {
        let root = (value - carried * carried).max(1e-300).sqrt();
        main.push(root);
        if let Some(off) = off.get(place) {
            carried = off / root;
            below.push(carried);
        }
    }
    (main, below)
}

pub(super) fn times(diagonal: &[f64], off: &[f64], vector: &[f64]) -> Vec<f64> {
    let mut product: Vec<f64> = diagonal.iter().zip(vector).map(|(a, b)| a * b).collect();
    for ((slot, off), next) in product.iter_mut().zip(off).zip(vector.iter().skip(1)) {
        *slot += off * next;
    }
    for ((slot, off), before) in product.iter_mut().skip(1).zip(off).zip(vector) {
        *slot += off * before;
    }
    product
}

pub(super) fn solve_lower(factor: &Factor, right: &[f64]) -> Vec<f64> {
    let mut before = 0.0;
    let belows = std::iter::once(0.0).chain(factor.1.iter().copied());
    right
        .iter()
        .zip(&factor.0)
        .zip(belows)
        .map(|((right, diagonal), below)| {
            before = (right - below * before) / diagonal;
            before
        })
        .collect()
}

pub(super) fn solve_upper(factor: &Factor, right: &[f64]) -> Vec<f64> {
    let mut solved = right.to_vec();
    let mut next = 0.0;
    for (place, (slot, diagonal)) in solved.iter_mut().zip(&factor.0).enumerate().rev() {
        next = (*slot - factor.1.get(place).copied().unwrap_or(0.0) * next) / diagonal;
        *slot = next;
    }
    solved
}
