package cluster

import (
	"flag"
	"os"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

var seed = flag.Uint64("plan", 1, "the seed that decides what is asked for and which faults come")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testenv.Run(m, nil))
}
