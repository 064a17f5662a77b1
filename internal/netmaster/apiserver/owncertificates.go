package apiserver

import (
	"cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
)

// judgeCertificates tells of certificates that have ended, or will soon, and of those whose
// files cannot be used any more.
func (f facts) judgeCertificates(where string, all []api.Certificate) (out []api.Finding) {
	for _, c := range all {
		if text := supportbundle.Unusable(c); text != "" {
			out = append(out, condition.CertificateUnusable.Finding(where, text))
		}
		text, remedy, ended := supportbundle.ExpiryProblem(c, f.now)
		if text == "" {
			continue
		}
		found := condition.CertificateExpires.Finding(where, text)
		if ended {
			found = condition.CertificateEnded.Finding(where, text)
		}
		found.Remedy = remedy
		out = append(out, found)
	}
	return out
}

// ownName is the object of findings about this netmaster.
func (s *diagnosis) ownName() string { return "netmaster " + cmp.Or(s.address, "here") }
