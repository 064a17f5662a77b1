package join

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
	// kept is for how long a token that is over is known, so that who shows it is told so.
	kept = 30 * 24 * time.Hour

	tokenPrefix = "contiv-join-"
	maxToken    = 4096 // bytes
	idLen       = 10   // of 32 letters: 50 bits
	secretLen   = 26   // 130 bits
	letters     = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
)

// Fingerprint is the SHA-256 of an authority's certificate.
type Fingerprint [sha256.Size]byte

// String is the beginning of it, for people.
func (f Fingerprint) String() string { return base64.RawURLEncoding.EncodeToString(f[:9]) }

// Token is what a new member shows: where the cluster is, how it is known, and a
// secret that works once.
type Token struct {
	Addresses []string // host:port, of members' doors
	Authority Fingerprint
	ID        string // no secret: it is listed and logged
	secret    string
}

type tokenText struct {
	Addresses []string `json:"a"`
	Authority []byte   `json:"f"`
	ID        string   `json:"i"`
	Secret    string   `json:"s"`
}

// Text is the token with its secret, as ParseToken reads it.
func (t Token) Text() string {
	b, _ := json.Marshal(tokenText{t.Addresses, t.Authority[:], t.ID, t.secret}) // of strings and bytes: it cannot fail
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// String leaves the secret out.
func (t Token) String() string { return "join token " + t.ID }

// ParseToken reads a token. The error, model.ErrInvalid, does not say what it read:
// that may be a secret but for a letter.
func ParseToken(s string) (Token, error) {
	bad := model.Errorf(model.ErrInvalid, "the join token is none, or not all of one: give it as 'netctl cluster token' printed it, in one line")
	rest, ok := strings.CutPrefix(strings.TrimSpace(s), tokenPrefix)
	if !ok || len(s) > maxToken {
		return Token{}, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return Token{}, bad
	}
	var text tokenText
	if json.Unmarshal(b, &text) != nil || len(text.Authority) != sha256.Size || !isText(text.ID, idLen) || !isText(text.Secret, secretLen) {
		return Token{}, bad
	}
	t := Token{Addresses: text.Addresses, Authority: Fingerprint(text.Authority), ID: text.ID, secret: text.Secret}
	for _, a := range t.Addresses {
		if checkAddress(a) != nil {
			return Token{}, bad
		}
	}
	return t, nil
}

func isText(s string, n int) bool { return len(s) == n && strings.Trim(s, letters) == "" }

func newToken(addresses []string, authority Fingerprint) Token {
	return Token{Addresses: addresses, Authority: authority, ID: rand.Text()[:idLen], secret: rand.Text()}
}

// hash is what the store has of the secret, whose 130 random bits need no slow one.
func hash(id, secret string) []byte {
	sum := sha256.Sum256([]byte(id + "-" + secret))
	return sum[:]
}

// checkAddress refuses what is no host:port that others could connect to.
func checkAddress(a string) error {
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" || port == "" || port == "0" {
		return model.Errorf(model.ErrInvalid, "%q: must be host:port", a)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return model.Errorf(model.ErrInvalid, "%q: must be an address by which the other hosts reach this one", a)
	}
	return nil
}
