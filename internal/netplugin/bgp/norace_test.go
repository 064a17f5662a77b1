//go:build !race

package bgp

// raced: the tests run under the race detector.
const raced = false
