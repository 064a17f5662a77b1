package cni

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asPlugin makes the test's binary be the plugin.
const asPlugin = "N_CNI_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(Run("about"))
	}
	goleak.VerifyTestMain(m)
}
