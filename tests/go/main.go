// Checks what a ledger issued with golang.org/x/mod/sumdb: checkpoint notes under the trust line,
// inclusion proofs from .tlog-proof files, consistency between two checkpoints.
//
// Reads one JSON object from standard input; says "ok N records" or why not.
package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type record struct {
	Link  string `json:"link"`
	Proof string `json:"proof"`
}

type input struct {
	Trust   string   `json:"trust"`
	Old     string   `json:"old"`
	New     string   `json:"new"`
	Records []record `json:"records"`
	Tree    []string `json:"tree"`
}

type head struct {
	size int64
	root tlog.Hash
}

func main() {
	n, err := check()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("ok %d records\n", n)
}

func check() (int, error) {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return 0, err
	}
	verifier, err := note.NewVerifier(in.Trust)
	if err != nil {
		return 0, err
	}
	old, err := open(in.Old, verifier)
	if err != nil {
		return 0, fmt.Errorf("old checkpoint: %w", err)
	}
	now, err := open(in.New, verifier)
	if err != nil {
		return 0, fmt.Errorf("new checkpoint: %w", err)
	}
	for i, r := range in.Records {
		if err := checkRecord(r, verifier, now); err != nil {
			return 0, fmt.Errorf("record %d: %w", i, err)
		}
	}
	var proof tlog.TreeProof
	for _, h := range in.Tree {
		hash, err := hashFromHex(h)
		if err != nil {
			return 0, err
		}
		proof = append(proof, hash)
	}
	if err := tlog.CheckTree(proof, now.size, now.root, old.size, old.root); err != nil {
		return 0, fmt.Errorf("consistency: %w", err)
	}
	return len(in.Records), nil
}

// open verifies a note under the trust line; the epoch key's line is one that it does not know.
func open(text string, verifier note.Verifier) (head, error) {
	opened, err := note.Open([]byte(text), note.VerifierList(verifier))
	if err != nil {
		return head{}, err
	}
	if len(opened.Sigs) != 1 || len(opened.UnverifiedSigs) != 1 {
		return head{}, errors.New("expected the log's line and the epoch's")
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != verifier.Name() || lines[3] != "" {
		return head{}, errors.New("not a checkpoint of three lines")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return head{}, err
	}
	root, err := hashFromBase64(lines[2])
	return head{size, root}, err
}

func checkRecord(r record, verifier note.Verifier, now head) error {
	link, err := hex.DecodeString(r.Link)
	if err != nil {
		return err
	}
	parts := strings.SplitN(r.Proof, "\n\n", 2)
	if len(parts) != 2 {
		return errors.New("not a proof file")
	}
	under, err := open(parts[1], verifier)
	if err != nil {
		return err
	}
	if under != now {
		return errors.New("a proof under another checkpoint")
	}
	lines := strings.Split(parts[0], "\n")
	if lines[0] != "c2sp.org/tlog-proof@v1" || !strings.HasPrefix(lines[1], "index ") {
		return errors.New("not a proof file")
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "index "), 10, 64)
	if err != nil {
		return err
	}
	var proof tlog.RecordProof
	for _, line := range lines[2:] {
		hash, err := hashFromBase64(line)
		if err != nil {
			return err
		}
		proof = append(proof, hash)
	}
	return tlog.CheckRecord(proof, now.size, now.root, index, tlog.RecordHash(link))
}

func hashFromHex(text string) (tlog.Hash, error) {
	bytes, err := hex.DecodeString(text)
	return hash(bytes, err)
}

func hashFromBase64(text string) (tlog.Hash, error) {
	bytes, err := base64.StdEncoding.DecodeString(text)
	return hash(bytes, err)
}

func hash(bytes []byte, err error) (tlog.Hash, error) {
	var h tlog.Hash
	if err == nil && len(bytes) != len(h) {
		err = errors.New("not a hash")
	}
	copy(h[:], bytes)
	return h, err
}
