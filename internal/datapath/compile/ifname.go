package compile

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// IfName is the name of the host side of an endpoint's veth pair: "cv" and 13
// base32 characters (65 bits) of a hash of its key, 15 bytes as Linux allows
// (IFNAMSIZ less one). Agent and driver meet under this name.
func IfName(k model.EndpointKey) string {
	sum := sha256.Sum256([]byte(k.String()))
	return "cv" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:13])
}
