// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	bundlev1 "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	commonv1 "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"
)

// mediaType is the bundle format that cosign 3 writes.
const mediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// sign writes a bundle with the signature of a file. Cosign reads the password of the key from
// COSIGN_PASSWORD. If a key is used, cosign contacts no server.
func (r *release) sign(ctx context.Context, file string) error {
	path := filepath.Join(r.dist, file)
	args := []string{"sign-blob", "--yes", "--bundle", path + bundleSuffix}
	if r.key != "" {
		args = append(args, "--key", r.key, "--use-signing-config=false", "--tlog-upload=false")
	}
	if err := r.cosign(ctx, append(args, path)...); err != nil {
		return err
	}
	text, err := os.ReadFile(path + bundleSuffix) //nolint:gosec // the file that cosign has just written
	if err != nil {
		return err
	}
	bundle := &bundlev1.Bundle{}
	if err := protojson.Unmarshal(text, bundle); err != nil {
		return err
	}
	if text, err = canonicalJSON(bundle); err != nil {
		return err
	}
	// cosign created the file for its owner only, and WriteFile does not change the mode of a file.
	return errors.Join(os.WriteFile(path+bundleSuffix, text, 0o644), //nolint:gosec // the files of a release are public
		os.Chmod(path+bundleSuffix, 0o644)) //nolint:gosec // as above
}

func (r *release) cosign(ctx context.Context, args ...string) error {
	//nolint:gosec // a tool of bin, whose folder the user specifies
	cmd := exec.CommandContext(ctx, filepath.Join(r.tools, "cosign"), args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cosign %s: %w: %s", args[0], err, out)
	}
	return nil
}

// An identity is the subject and the issuer that the certificate of a keyless signature must have.
type identity struct{ subject, issuer string }

// checkKeyless verifies a keyless signature with cosign, which also checks the transparency log.
func checkKeyless(ctx context.Context, tools, path string, want identity) error {
	//nolint:gosec // a tool of bin, whose folder the user specifies
	cosign := exec.CommandContext(ctx, filepath.Join(tools, "cosign"), "verify-blob", "--bundle", path+bundleSuffix,
		"--certificate-identity", want.subject, "--certificate-oidc-issuer", want.issuer, path)
	if out, err := cosign.CombinedOutput(); err != nil {
		return fmt.Errorf("cosign verify-blob: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// checkSignature verifies the bundle of a file with a public key in PEM. It accepts only the exact
// bytes that [release.sign] writes. Therefore, any other byte in the bundle is an error.
func checkSignature(data, bundle, publicKey []byte) error {
	b := &bundlev1.Bundle{}
	if err := protojson.Unmarshal(bundle, b); err != nil {
		return errors.New("the bundle is malformed")
	}
	canonical, err := canonicalJSON(b)
	if err != nil || !bytes.Equal(canonical, bundle) {
		return errors.New("the bundle is not in its canonical form")
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(publicKey)
	if err != nil {
		return fmt.Errorf("the public key: %w", err)
	}
	verifier, err := signature.LoadDefaultVerifier(key)
	if err != nil {
		return fmt.Errorf("the public key: %w", err)
	}
	digest := sha256.Sum256(data)
	message := b.GetMessageSignature()
	material := b.GetVerificationMaterial()
	switch {
	case b.GetMediaType() != mediaType:
		return fmt.Errorf("the bundle has the media type %q", b.GetMediaType())
	case material.GetPublicKey().GetHint() != hintOf(publicKey):
		return errors.New("the signature was made with another key")
	case len(material.GetTlogEntries()) > 0 || material.GetTimestampVerificationData() != nil:
		return errors.New("the bundle has entries of a log, which this command does not verify: use cosign verify-blob")
	case message.GetMessageDigest().GetAlgorithm() != commonv1.HashAlgorithm_SHA2_256 ||
		!bytes.Equal(message.GetMessageDigest().GetDigest(), digest[:]):
		return errors.New("the signature is about another file")
	}
	if err := verifier.VerifySignature(bytes.NewReader(message.GetSignature()), bytes.NewReader(data)); err != nil {
		return errors.New("the signature does not match the file and the key")
	}
	return nil
}

// hintOf returns the hint for a public key in a bundle (sigstore-go, pkg/sign/keys.go, v1.2.2).
func hintOf(publicKey []byte) string {
	key, err := cryptoutils.UnmarshalPEMToPublicKey(publicKey)
	if err != nil {
		return ""
	}
	der, err := cryptoutils.MarshalPublicKeyToDER(key)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(der)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// readKey reads a public key for [checkSignature].
func readKey(path string) ([]byte, error) {
	key, err := os.ReadFile(filepath.Clean(path)) //nolint:gosec // the user specifies the key
	if err == nil && hintOf(key) == "" {
		err = fmt.Errorf("%s is not a public key in PEM, such as cosign.pub", path)
	}
	return key, err
}
