package apiserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

// HostKey is what the cluster knows of the newest certificate that it has given a host.
type HostKey struct {
	// Key is the SHA-256 of its public key, Was of the one before it, which the host may
	// show until it has got the newest one; nil = none.
	Key, Was []byte
	By       string // "token ID", "renewal", ...
	At       time.Time
}

// HostKeys tells of the certificates that the cluster has given hosts, by host.
type HostKeys func(ctx context.Context) (map[string]HostKey, error)

// shownKey is the SHA-256 of the public key of the certificate that a client shows; nil =
// it shows none.
func shownKey(r *request) []byte {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	sum := sha256.Sum256(r.TLS.PeerCertificates[0].RawSubjectPublicKeyInfo)
	return sum[:]
}

// judgeKey tells of a host that shows a certificate which the cluster has replaced: another
// machine has got one for its name.
func (f facts) judgeKey(host string) []api.Finding {
	given, ok := f.keys[host]
	replaced := func(key []byte) bool { return !bytes.Equal(key, given.Key) && !bytes.Equal(key, given.Was) }
	if !ok || !slices.ContainsFunc(f.inspections.keys[host], replaced) {
		return nil
	}
	found := condition.HostTakenOver.Finding("host "+host, fmt.Sprintf("another machine has got a certificate for its name, on %s by %s: the one that this host shows is renewed no more", given.At.UTC().Format(time.RFC3339), given.By))
	found.Remedy = fmt.Sprintf("if the other one has no right to the name, 'netctl cluster token --host %s', and start netplugin here with --join and --token, after which that one's is renewed no more; if it has, start netplugin here under another name", host)
	return []api.Finding{found}
}
