//! Matrix products on the host: the CPU device's stand-in for the tensor pipe.

#![expect(unsafe_code, reason = "the product kernels take raw pointers")]

/// A matrix inside a slice, by rows, with no gaps.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T> {
    elements: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: isize,
    column_stride: isize,
}

impl<'a, T> Matrix<'a, T> {
    /// The first `rows` x `columns` elements as a matrix.
    ///
    /// # Panics
    /// Where the slice is shorter: the caller sizes its buffers, so that would be a fault of this program.
    pub fn new(elements: &'a [T], rows: usize, columns: usize) -> Self {
        let needed = rows.checked_mul(columns).expect("a matrix in memory has a size that fits");
        assert!(elements.len() >= needed, "{rows}x{columns} in {} elements", elements.len());
        let row_stride = isize::try_from(columns).expect("a slice has fewer elements than isize::MAX");
        Self { elements, rows, columns, row_stride, column_stride: 1 }
    }

    /// The same elements with rows and columns exchanged.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self {
            elements: self.elements,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }
}

/// A number type that products are made of.
pub trait Real: Copy {
    /// C = A B + `beta` C, with C by rows.
    ///
    /// # Panics
    /// Where the shapes do not meet or `c` is shorter than the product.
    fn multiply(a: Matrix<'_, Self>, b: Matrix<'_, Self>, beta: Self, c: &mut [Self]);
}

macro_rules! real {
    ($type:ty, $kernel:path) => {
        impl Real for $type {
            fn multiply(a: Matrix<'_, Self>, b: Matrix<'_, Self>, beta: Self, c: &mut [Self]) {
                assert_eq!(a.columns, b.rows, "inner dimensions differ");
                let needed = a.rows.checked_mul(b.columns).expect("a matrix in memory has a size that fits");
                assert!(c.len() >= needed, "{}x{} in {} elements", a.rows, b.columns, c.len());
                let columns = isize::try_from(b.columns).expect("a slice has fewer elements than isize::MAX");
                // SAFETY: `Matrix::new` checked that rows x columns elements are there and transposing keeps the set
                // of addresses; `c` was checked above. `c` is borrowed mutably, so it overlaps neither operand, and no
                // element of it has two places because its row stride is its number of columns.
                unsafe {
                    $kernel(
                        a.rows,
                        a.columns,
                        b.columns,
                        1.0,
                        a.elements.as_ptr(),
                        a.row_stride,
                        a.column_stride,
                        b.elements.as_ptr(),
                        b.row_stride,
                        b.column_stride,
                        beta,
                        c.as_mut_ptr(),
                        columns,
                        1,
                    );
                }
            }
        }
    };
}

real!(f32, matrixmultiply::sgemm);
real!(f64, matrixmultiply::dgemm);

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers, so that the product is exact in any order of summation.
    fn numbers(count: usize, step: usize) -> Vec<f64> {
        (0..count).map(|index| ((index * step) % 11) as f64 - 5.0).collect()
    }

    #[test]
    fn products_and_transposes_are_exact_on_whole_numbers() {
        let (m, n, k) = (5, 7, 9);
        let (a, b) = (numbers(m * k, 3), numbers(k * n, 5));
        let mut expected = vec![1.0; m * n];
        for row in 0..m {
            for column in 0..n {
                for inner in 0..k {
                    expected[row * n + column] += a[row * k + inner] * b[inner * n + column];
                }
            }
        }
        let mut c = vec![1.0; m * n];
        f64::multiply(Matrix::new(&a, m, k), Matrix::new(&b, k, n), 1.0, &mut c);
        assert_eq!(c, expected);

        let mut a_transposed = vec![0.0_f32; m * k];
        for row in 0..m {
            for inner in 0..k {
                a_transposed[inner * m + row] = a[row * k + inner] as f32;
            }
        }
        let b: Vec<f32> = b.iter().map(|value| *value as f32).collect();
        let mut c = vec![1.0_f32; m * n];
        f32::multiply(Matrix::new(&a_transposed, k, m).transposed(), Matrix::new(&b, k, n), 1.0, &mut c);
        assert_eq!(c.iter().map(|value| f64::from(*value)).collect::<Vec<_>>(), expected);
    }

    #[test]
    #[should_panic(expected = "inner dimensions differ")]
    fn shapes_must_meet() {
        let elements = [0.0_f32; 12];
        f32::multiply(Matrix::new(&elements, 3, 4), Matrix::new(&elements, 3, 4), 0.0, &mut [0.0; 12]);
    }

    #[test]
    #[should_panic(expected = "3x5 in 12 elements")]
    fn short_slices_are_refused() {
        Matrix::new(&[0.0_f32; 12], 3, 5);
    }
}
