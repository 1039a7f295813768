//! Sends 10 MB to the first client over QUIC, under ccplane's Cubic.
use std::sync::Arc;

use ccplane_quic::{OperatorLimits, Parameters, QuicPlane, Registry, Stack};
use quinn::{Endpoint, ServerConfig, TransportConfig};
use rustls::pki_types::PrivatePkcs8KeyDer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cubic = Registry::builtin().by_name("cubic", &Parameters::default())?;
    let plane = QuicPlane::in_process(Stack::Quinn, cubic, OperatorLimits::default())?;
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(plane.quinn()?);
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![key.cert.into()], private.into())?;
    config.transport_config(Arc::new(transport));
    let server = Endpoint::server(config, "127.0.0.1:4433".parse()?)?;
    let connection = server.accept().await.ok_or("the server was closed")?;
    let mut stream = connection.await?.open_uni().await?;
    stream.write_all(&vec![0; 10_000_000]).await?;
    stream.finish()?;
    stream.stopped().await?; // An earlier end of the connection would discard data.
    Ok(())
}
