package token

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
)

// A token is Prefix, an id, a hyphen and a secret. The id is no secret: it is
// listed, logged, and revoked by.
const (
	Prefix     = "contiv-"
	idLen      = 10 // characters of alphabet: 50 bits
	secretLen  = 26 // 130 bits
	alphabet   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	textLength = len(Prefix) + idLen + 1 + secretLen
)

// errText says of no text what is wrong with it: it may be a secret but for a letter.
var errText = errors.New("it is not a token: a token is " + Prefix + "ID-SECRET, as it was shown when it was made")

// ID names a token.
type ID string

// text is a token as its bearer has it.
type text struct {
	id     ID
	secret string
}

// Is reports whether a text claims to be a token of this package.
func Is(s string) bool { return strings.HasPrefix(s, Prefix) }

// ParseID reads a token's id.
func ParseID(s string) (ID, error) {
	if len(s) != idLen || strings.Trim(s, alphabet) != "" {
		return "", errors.New("must be the id of a token: 10 of the letters and digits A-Z and 2-7")
	}
	return ID(s), nil
}

// parse reads a token: exactly what String writes.
func parse(s string) (text, error) {
	if len(s) != textLength || !Is(s) || s[len(Prefix)+idLen] != '-' {
		return text{}, errText
	}
	rest := s[len(Prefix):]
	id, secret := rest[:idLen], rest[idLen+1:]
	if strings.Trim(id+secret, alphabet) != "" {
		return text{}, errText
	}
	return text{ID(id), secret}, nil
}

// String is the token, secret included.
func (t text) String() string { return Prefix + string(t.id) + "-" + t.secret }

// hash is the stored hash of a secret. A secret has 130 random bits, too many to try: a
// slow hash would only slow netmaster down.
func (t text) hash() [sha256.Size]byte { return sha256.Sum256([]byte(t.String())) }

func newText() text { return text{ID(rand.Text()[:idLen]), rand.Text()} }
