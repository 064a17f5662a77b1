package membership

import (
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// CertificateExpiry is when something of a member's ends that netmasters made for themselves.
type CertificateExpiry struct {
	What      string    `json:"what"`    // as people call it
	Subject   string    `json:"subject"` // as certificates write it
	Ends      time.Time `json:"ends"`
	Authority bool      `json:"authority,omitempty"`
	Former    bool      `json:"former,omitempty"` // an authority that was renewed since
	Error     string    `json:"error,omitempty"`  // why its files cannot be used; Subject and Ends are empty then
}

// CertificateExpiries are those of this member's certificates and of both authorities, as their files
// are now.
func (m *Health) CertificateExpiries() (out []CertificateExpiry) {
	add := func(dir, what, authority string) {
		d, err := transport.OpenDirectory(dir)
		if err != nil {
			out = append(out, CertificateExpiry{What: what, Error: err.Error()})
			return
		}
		leaf, roots := d.All()
		out = append(out, CertificateExpiry{What: what, Subject: leaf.Subject.String(), Ends: leaf.NotAfter})
		for i, r := range roots {
			out = append(out, CertificateExpiry{What: authority, Subject: r.Subject.String(), Ends: r.NotAfter, Authority: true, Former: i > 0})
		}
	}
	add(m.peers.own, "its certificate for other members", "the authority of members")
	if m.cfg.Secure != nil {
		add(ClientsDir(m.dir.path), "its certificate for hosts and people", "the authority of hosts and people")
	}
	return out
}

// fullStatus is Status with what is read from files.
func (m *Health) fullStatus() Status {
	s := m.Status()
	s.Ends, s.Renews = m.CertificateExpiries(), true
	return s
}

// What to do about what ends.
const (
	RenewOwn       = "netmaster renews it from 30 days before its end on, and when it starts: its log says why that fails"
	RenewAuthority = "renew it with 'netctl cluster renew-authorities' 90 days before at the latest: it signs nothing that ends later than itself"
	RetirePrevious = "it was renewed: restart netmasters and netplugins that run since before that, before its end"
)

// authoritySoon is how long before its end an authority is reported: it signs nothing that
// ends later than itself.
const authoritySoon = 180 * 24 * time.Hour

// warnFrom is when people are to hear of it: of what renews itself when that is late.
func (e CertificateExpiry) warnFrom() time.Time {
	switch {
	case e.Authority && !e.Former:
		return e.Ends.Add(-authoritySoon)
	case e.Former:
		return e.Ends.Add(-pki.Soon)
	}
	return e.Ends.Add(7*24*time.Hour - pki.Soon)
}

func (e CertificateExpiry) remedy() string {
	switch {
	case e.Former:
		return RetirePrevious
	case e.Authority:
		return RenewAuthority
	}
	return RenewOwn
}

// expiryTexts are sentences about what has ended, or will soon, of one member: those about
// authorities are the same for all.
func (s Status) expiryTexts(name string, now time.Time) (out []string) {
	for _, e := range s.Ends {
		if e.Error != "" {
			out = append(out, fmt.Sprintf("%s: %s cannot be used: %s", name, e.What, e.Error))
			continue
		}
		if now.Before(e.warnFrom()) {
			continue
		}
		verb := "ends"
		if !now.Before(e.Ends) {
			verb = "has ended"
		}
		text := fmt.Sprintf("%s (%s) %s on %s: %s", e.What, e.Subject, verb, e.Ends.UTC().Format(time.DateOnly), e.remedy())
		if !e.Authority {
			text = name + ": " + text
		}
		out = append(out, text)
	}
	return out
}
