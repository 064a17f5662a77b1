package transport

import (
	"crypto/x509"
	"errors"
	"strings"
)

// Remedy says what to do about an error of a TLS connection that a client made; empty
// = the error is no such.
func Remedy(err error) string {
	if err == nil {
		return ""
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is of an authority that is not trusted here: give the directory with the cluster's ca.crt with --tls-dir"
	case errors.As(err, &name):
		return "its certificate is for other names: ask by one of those, or issue it one with 'netctl pki issue --addresses'"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has ended: renew it with 'netctl pki renew' and copy it there; or a clock is wrong"
	}
	for _, alert := range []struct{ text, remedy string }{
		{"remote error: tls: expired certificate", "it refuses our certificate, which has ended: renew it with 'netctl pki renew'"},
		{"remote error: tls: unknown certificate authority", "it refuses our certificate, which is of another authority: show one of the cluster's with --tls-dir"},
		{"remote error: tls: bad certificate", "it refuses our certificate: its role has no access there; give a certificate of another role with --tls-dir"},
		{"remote error: tls: certificate required", "it wants a certificate: show one of the cluster's with --tls-dir"},
		{"first record does not look like a TLS handshake", "it does not speak TLS: say http://"},
		{"server gave HTTP response to HTTPS client", "it does not speak TLS: say http://"},
	} {
		if strings.Contains(err.Error(), alert.text) {
			return alert.remedy
		}
	}
	return ""
}
