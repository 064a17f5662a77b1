package jointoken

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Bounds of tokens.
const (
	TokenLife    = time.Hour // when nothing else is asked for
	MaxTokenLife = 7 * 24 * time.Hour
	MaxTokens    = 100 // that are not over
	// Retention is for how long an expired token is remembered, so that its user learns that it
	// has expired.
	Retention = 30 * 24 * time.Hour

	tokenPrefix = "contiv-join-"
	maxToken    = 4096 // bytes
	IDLen       = 10   // of 32 letters: 50 bits
	SecretLen   = 26   // 130 bits
	letters     = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
)

// Fingerprint is the SHA-256 of an authority's certificate.
type Fingerprint [sha256.Size]byte

// String is the beginning of it, for people.
func (f Fingerprint) String() string { return base64.RawURLEncoding.EncodeToString(f[:9]) }

// Token is what a new member shows: where the cluster is, how it is known, and a
// secret that works once.
type Token struct {
	Addresses []string // host:port, of members' enrollment servers
	Authority Fingerprint
	ID        string // no secret: it is listed and logged
	Secret    string
	Host      string // whose netplugin it is for; "" = it is a netmaster's
}

type tokenText struct {
	Addresses []string `json:"a"`
	Authority []byte   `json:"f"`
	ID        string   `json:"i"`
	Secret    string   `json:"s"`
	Host      string   `json:"h,omitempty"`
}

// Text is the token with its secret, as Parse reads it.
func (t Token) Text() string {
	b, _ := json.Marshal(tokenText{t.Addresses, t.Authority[:], t.ID, t.Secret, t.Host}) // of strings and bytes: it cannot fail
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// String leaves the secret out.
func (t Token) String() string { return "join token " + t.ID }

// Parse reads a token. The error, model.ErrInvalid, does not say what it read:
// that may be a secret but for a letter.
func Parse(s string) (Token, error) {
	bad := model.Errorf(model.ErrInvalid, "the join token is invalid or incomplete: give it as 'netctl cluster token' printed it, in one line")
	rest, ok := strings.CutPrefix(strings.TrimSpace(s), tokenPrefix)
	if !ok || len(s) > maxToken {
		return Token{}, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return Token{}, bad
	}
	var text tokenText
	if json.Unmarshal(b, &text) != nil || len(text.Addresses) == 0 || len(text.Authority) != sha256.Size || !IsText(text.ID, IDLen) || !IsText(text.Secret, SecretLen) {
		return Token{}, bad
	}
	t := Token{Addresses: text.Addresses, Authority: Fingerprint(text.Authority), ID: text.ID, Secret: text.Secret, Host: text.Host}
	for _, a := range t.Addresses {
		if CheckAddress(a) != nil {
			return Token{}, bad
		}
	}
	return t, nil
}

// IsText reports whether s is n letters of a token.
func IsText(s string, n int) bool { return len(s) == n && strings.Trim(s, letters) == "" }

// New makes a token of a netmaster's. Members know it by its row alone.
func New(addresses []string, authority Fingerprint) Token {
	return Token{Addresses: addresses, Authority: authority, ID: rand.Text()[:IDLen], Secret: rand.Text()}
}

// Hash is what the store has of the secret, whose 130 random bits need no slow one.
func Hash(id, secret string) []byte {
	sum := sha256.Sum256([]byte(id + "-" + secret))
	return sum[:]
}

// CheckAddress refuses what is no host:port that others could connect to.
func CheckAddress(a string) error {
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" || port == "" || port == "0" {
		return model.Errorf(model.ErrInvalid, "%q: must be host:port", a)
	}
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		return model.Errorf(model.ErrInvalid, "%q: must be an address by which the other hosts reach this one", a)
	}
	return nil
}
