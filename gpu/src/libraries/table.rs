//! Tables of functions: what a library must have, declared once.

/// Declares a struct of function pointers that is filled from an open library, or names the first function it lacks.
///
/// The declared types are compared with cudarc's bindings, which are generated from NVIDIA's headers, when this crate is
/// compiled. Results are declared as plain integers: a driver may answer with a code that is younger than the
/// bindings, and a Rust enum must never hold such a value.
macro_rules! function_table {
    (
        $(#[$meta:meta])*
        $table:ident of $($module:ident)::+ returns $bound:ty as $raw:ty {
            $(fn $name:ident($($argument:ty),* $(,)?);)*
        }
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "the functions keep their names")]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $raw,)*
        }

        impl $table {
            /// Every function of the table.
            #[allow(dead_code, reason = "read by tests")]
            pub(crate) const SYMBOLS: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Looks all functions up.
            pub(crate) fn load(
                loaded: &$crate::libraries::Loaded,
            ) -> Result<Self, $crate::libraries::LibraryError> {
                Ok(Self {
                    $(
                        // SAFETY: the type is the header's, as the constant below has the compiler check.
                        $name: unsafe { loaded.function(stringify!($name))? },
                    )*
                })
            }
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($table))
            }
        }

        const _: () = {
            use $($module)::+ as bindings;
            $(let _: unsafe fn($($argument),*) -> $bound = bindings::$name;)*
        };
    };
}

pub(crate) use function_table;
