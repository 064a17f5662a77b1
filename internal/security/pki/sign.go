package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
)

// Sign makes a certificate for a key that its owner keeps: PEM, with the links to
// former authorities. Nothing is written.
func (a *Authority) Sign(r Request, key any) (cert *x509.Certificate, text []byte, err error) {
	pub, ok := key.(*ecdsa.PublicKey)
	if !ok || pub.Curve != elliptic.P256() {
		return nil, nil, errors.New("the key must be of ECDSA P-256")
	}
	template, err := a.template(r)
	if err != nil {
		return nil, nil, err
	}
	if cert, err = a.sign(template, a.roots[0], pub, a.key); err != nil {
		return nil, nil, err
	}
	return cert, encode(append([]*x509.Certificate{cert}, a.links...)), nil
}

// Text is the bundle in PEM: what BundleFile has.
func (a *Authority) Text() []byte { return encode(a.roots) }
