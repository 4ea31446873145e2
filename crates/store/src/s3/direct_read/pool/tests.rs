//! Connections over TLS, to a server whose certificate only this test trusts: its key is in this folder.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::*;

fn certificate() -> CertificateDer<'static> {
    CertificateDer::from(&include_bytes!("test-cert.der")[..])
}

async fn answer(acceptor: TlsAcceptor, socket: TcpStream) -> io::Result<()> {
    let mut socket = acceptor.accept(socket).await?;
    let mut four = [0; 4];
    socket.read_exact(&mut four).await?;
    socket.write_all(&four).await?;
    socket.shutdown().await
}

/// Echoes the first four bytes of each connection; a client that does not trust it closes the connection.
async fn echo() -> Arc<Authority> {
    let key = PrivatePkcs8KeyDer::from(&include_bytes!("test-key.der")[..]);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate()], PrivateKeyDer::Pkcs8(key))
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(acceptor.clone(), socket));
        }
    });
    Arc::new(Authority {
        tls: true,
        host: "localhost".to_owned(),
        port,
        name: format!("localhost:{port}"),
        proxy: None,
    })
}

fn trusting(certificates: Vec<CertificateDer<'static>>) -> Pool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    Pool {
        idle: Mutex::default(),
        tls: OnceCell::new_with(Some(TlsConnector::from(Arc::new(
            tls::trusting(roots).unwrap(),
        )))),
        low_water: None,
    }
}

#[tokio::test]
async fn bytes_go_both_ways_over_tls() {
    let (to, pool) = (echo().await, trusting(vec![certificate()]));
    let mut connection = pool.connect(&to, false).await.unwrap();
    connection.wire.write_all(b"ping").await.unwrap();
    connection.wire.flush().await.unwrap();
    let mut four = [0; 4];
    connection.wire.read_exact(&mut four).await.unwrap();
    assert_eq!(&four, b"ping");
}

#[tokio::test]
async fn an_untrusted_server_is_sent_no_request() {
    let (to, pool) = (echo().await, trusting(Vec::new()));
    let why = pool.connect(&to, false).await.err().unwrap();
    assert!(why.contains("certificate"), "{why}");
    let (other, pool) = (echo().await, trusting(vec![certificate()]));
    let elsewhere = Authority {
        host: "127.0.0.1".to_owned(),
        name: other.name.clone(),
        proxy: None,
        ..*other
    };
    let why = pool
        .connect(&Arc::new(elsewhere), false)
        .await
        .err()
        .unwrap();
    assert!(why.contains("certificate"), "the name does not fit: {why}");
}

#[tokio::test]
async fn connections_are_reused_for_the_same_destination() {
    let (here, there, pool) = (echo().await, echo().await, trusting(vec![certificate()]));
    let connection = pool.connect(&here, false).await.unwrap();
    assert!(!connection.used);
    pool.give_back(connection);
    assert!(!pool.connect(&there, false).await.unwrap().used);
    assert!(!pool.connect(&here, true).await.unwrap().used);
    assert!(pool.connect(&here, false).await.unwrap().used);
    assert!(!pool.connect(&here, false).await.unwrap().used);
}

/// The marks that were set.
static MARKS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn noted(_: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let mut marks = MARKS.lock().unwrap();
    marks.push(bytes);
    // The last call fails, as on a kernel without the option.
    (marks.len() < 3)
        .then_some(())
        .ok_or(io::ErrorKind::Unsupported.into())
}

#[tokio::test]
async fn a_body_wakes_its_reader_for_a_good_part_and_a_head_for_anything() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = Arc::new(Authority {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port,
        name: format!("127.0.0.1:{port}"),
        proxy: None,
    });
    let pool = Pool::new(Some(noted));
    let mut connection = pool.connect(&to, false).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(&[1; 100]).await.unwrap();
    let mut large = vec![0; MARK_MAX + 1];
    let count = connection.read(&mut large).await.unwrap().unwrap();
    assert_eq!(count, 100, "what the mark lets through is what comes");
    let rest = connection.read(&mut large[..50]);
    server.write_all(&[1; 50]).await.unwrap();
    assert_eq!(rest.await.unwrap().unwrap(), 50);
    connection.expect(1);
    connection.expect(7);
    assert_eq!(*MARKS.lock().unwrap(), [MARK_MAX, 50, 1]);
}
