//! TLS: whom we trust, and what a failed handshake means.
//!
//! Trusted are the system's authorities and those of `ca_file`. The system's are read once, since that is a hundred
//! files and more; `ca_file` is read anew for each request, since it is what an operator replaces. There is no way to
//! turn the check of certificates off.

use std::error::Error;
use std::io;
use std::sync::Arc;

use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, InvalidMessage, RootCertStore};

use super::connect::{Stream, causes};
use super::request::{Peer, Request};
use crate::model::{Failure, FailureKind};

/// The system's authorities, in the order in which it lists them.
static SYSTEM: OnceCell<RootCertStore> = OnceCell::const_new();

/// Agrees on TLS over a connection.
pub(super) async fn handshake(request: &Request, stream: Stream) -> Result<TlsStream<Stream>, Failure> {
    let Peer::Tcp { host, .. } = &request.peer else {
        return Err(request.failure(FailureKind::Internal, "TLS is only spoken over TCP"));
    };
    let name = ServerName::try_from(host.clone())
        .map_err(|_| request.failure(FailureKind::Tls, "the host is no name that a certificate can have"))?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| request.failure(FailureKind::Internal, format!("TLS cannot be set up ({error})")))?
        .with_root_certificates(trusted(request).await?)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| {
        failure_behind(request, &error).unwrap_or_else(|| {
            let what = format!("the TLS handshake broke off ({error}): is it an https server?");
            request.failure(FailureKind::Tls, what)
        })
    })
}

/// Everybody who is trusted.
async fn trusted(request: &Request) -> Result<RootCertStore, Failure> {
    let system = SYSTEM
        .get_or_try_init(|| async {
            tokio::task::spawn_blocking(|| {
                let mut store = RootCertStore::empty();
                // What cannot be read or parsed is not trusted; a handshake that misses it says so.
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                store
            })
            .await
        })
        .await
        .map_err(|error| {
            let what = format!("the system's certificates could not be read ({error})");
            request.failure(FailureKind::Internal, what)
        })?;
    let mut store = system.clone();
    if let Some(file) = &request.ca {
        let content = file.read().await.map_err(|failure| request.failure(failure.kind, failure.message))?;
        let unusable =
            |why: String| request.failure(FailureKind::Tls, format!("{file} {why}: it holds certificates in PEM"));
        let mut count = 0_usize;
        for certificate in CertificateDer::pem_slice_iter(&content) {
            let certificate = certificate.map_err(|error| unusable(format!("cannot be parsed ({error})")))?;
            store
                .add(certificate)
                .map_err(|error| unusable(format!("has a certificate that is unusable ({error})")))?;
            count += 1;
        }
        if count == 0 {
            return Err(unusable("holds no certificate".to_owned()));
        }
    }
    Ok(store)
}

/// The failure that a TLS error among the causes of an error means, if there is one. In TLS 1.3 a server's refusal may
/// come only with the first read, so errors of the exchange are looked at too.
pub(super) fn failure_behind(request: &Request, error: &(dyn Error + 'static)) -> Option<Failure> {
    let error = causes(error).find_map(|error| {
        error.downcast_ref::<rustls::Error>().or_else(|| {
            // An `io::Error` hides the error it wraps from `source()` and shows only that one's cause.
            error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<rustls::Error>()
        })
    })?;
    let advice = match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "nobody we trust has signed its certificate: put its authority's into ca_file"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another name: use that name in the url",
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired: renew it, or set this machine's clock"
        }
        rustls::Error::InvalidCertificate(_) => "its certificate is not accepted",
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => "it does not speak TLS: is it http://?",
        _ => "no TLS connection could be agreed on",
    };
    Some(request.failure(FailureKind::Tls, format!("{advice} ({error})")))
}
