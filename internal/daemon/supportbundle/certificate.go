package supportbundle

import (
	"crypto/x509"
	"fmt"
	"iter"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

const (
	// expiresSoon is how long before its expiry a certificate is reported.
	expiresSoon = 30 * 24 * time.Hour
	// authorityExpiresSoon is the same for an authority. It is longer, since an authority signs
	// nothing that expires after itself, and certificates are valid for 90 days.
	authorityExpiresSoon = 180 * 24 * time.Hour
	// overdue is how long a daemon that renews its certificate itself may try before.
	overdue = 7 * 24 * time.Hour
)

// Renewal is how a daemon's certificates are renewed, in sentences for people.
type Renewal struct {
	Certificate string
	Authority   string
	Previous    string // what to do about an authority that was renewed, before it ends
	Itself      bool   // the daemon renews its certificate from 30 days before its end on
}

// Manual is the renewal of certificates that 'netctl pki' makes.
var Manual = Renewal{
	Certificate: "renew it with 'netctl pki renew', and copy it there",
	Authority:   "make the next one with 'netctl pki authority', renew what this one signed, and copy that to its hosts",
	Previous:    "it was renewed: end it with 'netctl pki authority --retire', and before its end restart netmasters and netplugins that run since before",
}

// Certificates returns a function that lists certificates by their use, the authorities'
// newest first; see Support. unusable returns why a certificate's files cannot be used any
// more; nil = not known.
func Certificates(all iter.Seq2[string, *x509.Certificate], unusable func(use string) error, how Renewal) func() []api.Certificate {
	return func() (out []api.Certificate) {
		last := ""
		for use, cert := range all {
			c := how.CertificateOf(use, cert.Subject.String(), cert.NotAfter, cert.IsCA, use == last)
			if unusable != nil && !cert.IsCA {
				if err := unusable(use); err != nil {
					c.Error = err.Error()
				}
			}
			out = append(out, c)
			last = use
		}
		return out
	}
}

// CertificateOf is a certificate that is renewed so.
func (r Renewal) CertificateOf(use, subject string, ends time.Time, authority, former bool) api.Certificate {
	c := api.Certificate{Use: use, Subject: subject, Ends: ends, TellFrom: ends.Add(-expiresSoon)}
	switch {
	case authority && former:
		c.Remedy = r.Previous
	case authority:
		c.TellFrom, c.Remedy = ends.Add(-authorityExpiresSoon), r.Authority
	case r.Itself:
		c.TellFrom, c.Remedy = c.TellFrom.Add(overdue), r.Certificate
	default:
		c.Remedy = r.Certificate
	}
	return c
}

// ExpiryProblem says of a certificate that it has ended, or will soon, and what to do; "" = it
// is good for long.
func ExpiryProblem(c api.Certificate, now time.Time) (text, remedy string, ended bool) {
	remedy, from := c.Remedy, c.TellFrom
	if remedy == "" { // of an older daemon
		remedy = Manual.Certificate
	}
	if from.IsZero() {
		from = c.Ends.Add(-expiresSoon)
	}
	if c.Ends.IsZero() { // it was never read
		return "", "", false
	}
	left, ends := c.Ends.Sub(now), c.Ends.UTC().Format(time.DateOnly)
	switch {
	case left <= 0:
		return fmt.Sprintf("%s (%s) ended on %s", c.Use, c.Subject, ends), remedy, true
	case !now.Before(from):
		return fmt.Sprintf("%s (%s) ends on %s, in %d days", c.Use, c.Subject, ends, int(left/(24*time.Hour))), remedy, false
	}
	return "", "", false
}

// Unusable says of a certificate that its files cannot be used any more; "" = they can.
func Unusable(c api.Certificate) string {
	if c.Error == "" {
		return ""
	}
	return c.Use + " cannot be read again, and is gone when the daemon restarts: " + c.Error
}

// CertificateProblems are the sentences of Ending and Unusable about all of a daemon's certificates.
func (s *Support) CertificateProblems(now time.Time) (ended, ending []string) {
	if s == nil || s.Certificates == nil {
		return nil, nil
	}
	for _, c := range s.Certificates() {
		if text := Unusable(c); text != "" {
			ending = append(ending, text)
		}
		text, remedy, over := ExpiryProblem(c, now)
		switch {
		case text == "":
		case over:
			ended = append(ended, text+": "+remedy)
		default:
			ending = append(ending, text+": "+remedy)
		}
	}
	return ended, ending
}
