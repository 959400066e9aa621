// SPDX-License-Identifier: Apache-2.0
export default {
  base: './',
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    // Names without a hash: the server forbids caches, and a change is a change of one file.
    rollupOptions: { output: { entryFileNames: 'page.js', assetFileNames: 'page[extname]' } },
  },
}
