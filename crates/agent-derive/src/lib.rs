//! `#[derive(Fields)]` for structs into which reports are read; see `ccplane_agent::Fields`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Type};

/// Derives `Fields`, which reads a report into the struct. The fields must be the program's report
/// variables, with the same names and order: `u64` for a number and `bool` for a truth value.
#[proc_macro_derive(Fields)]
pub fn fields(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let parsed = syn::parse(input).and_then(|input| implement(&input));
    parsed.unwrap_or_else(|why| why.to_compile_error()).into()
}

/// Implements the trait `Fields` under that unqualified name, which the deriving module has
/// imported with the macro.
fn implement(input: &DeriveInput) -> Result<TokenStream, Error> {
    let fields = match &input.data {
        Data::Struct(data)
            if input.generics.params.is_empty()
                && data.fields.iter().all(|field| field.ident.is_some()) =>
        {
            &data.fields
        }
        _ => {
            let why = "`Fields` needs a struct with named fields and without generic parameters";
            return Err(Error::new(input.ident.span(), why));
        }
    };
    let name = &input.ident;
    let idents: Vec<_> = fields
        .iter()
        .filter_map(|field| field.ident.as_ref())
        .collect();
    let names: Vec<String> = idents
        .iter()
        .map(|ident| unraw(&ident.to_string()))
        .collect();
    let values = fields.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    Ok(quote! {
        impl Fields for #name {
            const NAMES: &'static [&'static str] = &[#(#names),*];

            fn read(values: &[u64]) -> ::core::option::Option<Self> {
                let &[#(#idents),*] = values else { return ::core::option::Option::None };
                ::core::option::Option::Some(Self { #(#idents: #values),* })
            }
        }
    })
}

/// Converts a number of the report to the type of the field.
fn value(field: &Field) -> Result<TokenStream, Error> {
    let ident = &field.ident;
    match &field.ty {
        Type::Path(path) if path.path.is_ident("u64") => Ok(quote!(#ident)),
        Type::Path(path) if path.path.is_ident("bool") => Ok(quote!(#ident != 0)),
        other => Err(Error::new(
            other.span(),
            "a report field must be `u64` or `bool`",
        )),
    }
}

/// Strips the prefix of a raw identifier: `r#type` in Rust is `type` in a program.
fn unraw(ident: &str) -> String {
    ident.strip_prefix("r#").unwrap_or(ident).to_owned()
}
