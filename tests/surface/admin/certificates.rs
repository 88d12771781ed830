//! A certificate authority, and certificates that it issued, as files.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

pub(crate) struct TestCertificates {
    pub(crate) folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl TestCertificates {
    pub(crate) fn new() -> TestCertificates {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let certificates = TestCertificates { folder, issuer: Issuer::new(params, key) };
        certificates.renew();
        certificates.issue("client", ExtendedKeyUsagePurpose::ClientAuth);
        certificates
    }

    /// Writes a certificate for this machine, and its key.
    fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// Replaces the server's certificate by a new one.
    pub(crate) fn renew(&self) {
        self.issue("server", ExtendedKeyUsagePurpose::ServerAuth);
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }
}
