//! Stand-ins until `ccplane-lang` has them.
#![allow(missing_docs)]
pub mod lang {
    #[derive(Debug)]
    pub struct Program;
    #[derive(Debug, thiserror::Error)]
    #[error("diagnostics")]
    pub struct Diagnostics;
    #[derive(Default)]
    pub struct Limits;
    pub fn compile(_: &str, _: &Limits) -> Result<Program, Diagnostics> {
        Err(Diagnostics)
    }
    impl Program {
        pub fn code(&self) -> &ccplane_datapath::Program {
            unimplemented!()
        }
        pub fn var_index(&self, _: &str) -> Option<u8> {
            None
        }
        pub fn report_names(&self) -> impl Iterator<Item = &str> {
            [].into_iter()
        }
        pub fn control_names(&self) -> impl Iterator<Item = &str> {
            [].into_iter()
        }
    }
}
